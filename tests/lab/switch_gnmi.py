"""A gNMI target beside the lab's switch: serves the kernel's counters of its ports. ``python switch_gnmi.py ADDRESS``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "watch"))

from watch_kit import GnmiTarget

STATE = "/interfaces/interface/state"


def number(path):
    return lambda: int(Path(path).read_text())


def leaves(port):
    base = f"/sys/class/net/{port}/statistics"
    return {
        f"{STATE}/type": "ethernetCsmacd",
        f"{STATE}/counters/in-octets": number(f"{base}/rx_bytes"),
        f"{STATE}/counters/out-octets": number(f"{base}/tx_bytes"),
        "/interfaces/interface/ethernet/state/port-speed": "SPEED_1GB",
    }


if __name__ == "__main__":
    target = GnmiTarget({f"swp{n}": leaves(f"swp{n}") for n in range(1, 9)}, host=sys.argv[1])
    print(target.port, flush=True)
    sys.stdin.read()
    target.close()
