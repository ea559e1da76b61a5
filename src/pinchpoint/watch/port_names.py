"""What a port is, told from its name alone: for sources that say nothing else of it."""

from __future__ import annotations

import re

__all__ = ["counts_of", "port_kind"]

# Kind → names, whole. Linux hosts first (as node_exporter's ``device``), then what switches call theirs.
_HOST = {
    "loopback": r"lo",
    "lag": r"(?:bond|team|lag)\d+",
    "sub": r".+[.@:]\w+|(?:vlan|macvlan|macvtap|ipvlan|ipvl|vxlan|flannel|geneve)[\w.-]*",
    "bridge": r"(?:br|cni|docker|podman|virbr|lxcbr|lxdbr|vmbr|cbr|ovs|kube-bridge)[\w.-]*",
    "virtual": r"(?:veth|cali|cilium|lxc|tun|tap|wg|tailscale|dummy|kube-ipvs|nodelocaldns|ifb|gre|gretap|erspan|sit|"
               r"ip6tnl|ip_vti|ip6_vti|ip6gre|tunl|vnet|fwln|fwpr|nerdctl|azv|eni[0-9a-f]{8,}|gke)[\w.-]*",
}  # fmt: skip
_SWITCH = {
    "loopback": r"(?:loopback|lo)[ _-]?\d*(?:\.\d+)?",
    "lag": r"(?:port-?channel|po|bundle-ether|be|ae|lag|trk|trunk|eth-trunk|bridge-aggregation|bond|team)[ _-]?\d+",
    "sub": r"[^.]*\d\.\d+",
    "bridge": r"(?:bridge|br)[\w.-]*",
    "virtual": r"(?:vlan|irb|vxlan|vtep|tunnel|null|dummy|veth|docker)[-_ ]?[\w./-]*|"
               r"(?:vl|bvi|nve|tu|vti|bdi|svi|cpu|vme)[-_ ]?\d*",
}  # fmt: skip


def port_kind(name: str, counts: str) -> str:
    """``port``, ``lag``, ``sub``, ``bridge``, ``loopback`` or ``virtual``.

    Args:
        name: as the source has it, without the box it is in.
        counts: what its octets hold; an RDMA device is always a port.
    """
    if counts == "rdma":
        return "port"
    patterns = _HOST if counts == "netdev" else _SWITCH
    return next(
        (kind for kind, names in patterns.items() if re.fullmatch(names, name, re.IGNORECASE)), "port"
    )


def counts_of(expression: str) -> str:
    """What octets behind a PromQL expression hold, by the metric's name: ``switch`` where nothing tells."""
    if re.search(r"infiniband|rdma|roce", expression, re.IGNORECASE):
        return "rdma"
    return "netdev" if "node_network_" in expression or "windows_net_" in expression else "switch"
