"""What other tools print is read as an exchange: nccl-tests, and DeepEP's tests of either mode."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.commands.calibrate import calibrate
from pinchpoint.errors import TableError
from pinchpoint.twin.exchange_logs import read_log
from pinchpoint.twin.exchange_table import read_exchange
from pinchpoint.twin.table import kind_of

NCCL = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid 2682161 on    node-a device  0 [0x23] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 2682162 on    node-a device  1 [0x52] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid 3139299 on    node-b device  0 [0x23] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid 3139300 on    node-b device  1 [0x52] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576         65536     float    none      -1    45.00   23.30   17.48      0    44.10   23.78   17.83    N/A
     2097152        131072     float    none      -1    70.00   29.96   22.47      0    69.20   30.31   22.73    N/A
     4194304        262144     float    none      -1   120.00   34.95   26.21      0   119.00   35.25   26.43    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 22.1919
"""

OLD = """\
# nodes=2 gpus_per_node=8
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   268435456       1048576     float           520935    0.52    0.51  0e+00   519562    0.52    0.51  1e+00
"""

LOW = """\
# nodes=2 gpus_per_node=2
Allocating buffer size: 2116.29 MB ...
[rank 0] Dispatch + combine bandwidth: 66.0 GB/s, avg_t=315.00 us, min_t=300.00 us, max_t=330.00 us
[rank 0] Dispatch bandwidth: 63.00 GB/s, avg_t=118.00 us | Combine bandwidth: 74.00 GB/s, avg_t=195.00 us
[rank 1] Dispatch bandwidth: 62.00 GB/s, avg_t=120.00 us | Combine bandwidth: 73.00 GB/s, avg_t=197.00 us
"""

NORMAL = """\
# nodes=2 gpus_per_node=8
[tuning] SMs 24, NVL chunk 20, RDMA chunk 16: 40 + 1200 us, 43.00 GB/s (RDMA), 140.00 GB/s (NVL)
[tuning] Best dispatch (FP8): SMs 24, NVL chunk 20, RDMA chunk 16: 37 + 1179 us, 43.20 GB/s (RDMA), 141.00 GB/s (NVL)
[tuning] Best dispatch (BF16): SMs 24, NVL chunk 20, RDMA chunk 16: 38 + 2279 us, 43.24 GB/s (RDMA), 141.14 GB/s (NVL)
[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 16, 37 + 2300 us, 43.10 GB/s (RDMA), 140.10 GB/s (NVL)
"""


def test_nccl_tests_say_nodes_and_sizes_themselves():
    table = read_log("a2a.txt", NCCL)
    assert [(row.nodes, row.mb, row.us) for row in table.rows] == [
        (2, 1.048576, 45.0),
        (2, 2.097152, 70.0),
        (2, 4.194304, 120.0),
    ]
    assert table.domain_gpus == 2
    assert {row.leg for row in table.rows} == {"exchange"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (NCCL.replace("  none ", "   sum "), "line 12: sum is a reduction"),
        (NCCL.replace("   45.00", "     nan"), "line 12: nan"),
        (NCCL.replace("   70.00", "  -70.00"), "line 13: -70.00"),
        (NCCL.replace("   70.00", "     -70"), "line 13: -70 "),
        (
            LOW.replace("63.00 GB/s", "0.0 GB/s").replace("62.00 GB/s", "0.0 GB/s"),
            "dispatch says no time or no bandwidth",
        ),
    ],
)
def test_no_number_is_taken_from_the_next_column(text, named):
    with pytest.raises(TableError, match=named):
        read_log("log.txt", text)


def test_a_table_too_long_to_fit_is_refused_at_once(tmp_path):
    rows = "\n".join(f"2,8,{1000 + i},20" for i in range(5001))
    (tmp_path / "long.csv").write_text(f"nodes,gpus_per_node,bytes_per_rank,exchange_us\n{rows}")
    with pytest.raises(TableError, match="5,001 times"):
        read_exchange(tmp_path / "long.csv")


def test_an_older_header_and_no_redop():
    (row,) = read_log("old.txt", OLD).rows
    assert (row.nodes, row.mb, row.us) == (2, 268.435456, 520935.0)


def test_nccl_without_its_devices_must_be_told_the_nodes():
    text = "\n".join(line for line in NCCL.splitlines() if "Rank" not in line)
    with pytest.raises(TableError, match=r"# nodes=2 gpus_per_node=8"):
        read_log("a2a.txt", text)


def test_low_latency_is_the_mean_over_ranks():
    dispatch, combine = read_log("ll.txt", LOW).rows
    assert (dispatch.nodes, dispatch.us, combine.us) == (2, 119.0, 196.0)
    assert dispatch.mb == pytest.approx((63 * 118 + 62 * 120) / 2 / 1e3)  # GB/s × µs = kB


def test_low_latency_without_nodes_counts_ranks_of_eight():
    lines = [f"[rank {r}] Dispatch bandwidth: 60 GB/s, avg_t=100.00 us | Combine bandwidth: 70 GB/s, avg_t=200.00 us"
             for r in range(16)]  # fmt: skip
    both = read_log("ll.txt", "\n".join(lines))
    assert {row.nodes for row in both.rows} == {2}
    assert not any("taken for one node" in note for note in both.notes)
    one = read_log(
        "ll.txt", "\n".join(lines[:8])
    )  # what one of the two hosts prints looks the same as a node alone
    assert {row.nodes for row in one.rows} == {1}
    assert sum("ranks 0 to 7: taken for one node" in note for note in one.notes) == 1
    with pytest.raises(TableError, match="how many nodes"):
        read_log("ll.txt", "\n".join(lines[1:]))  # a rank is missing


def test_normal_mode_takes_the_best_lines_and_counts_a_token_once_per_node():
    table = read_log("normal.txt", NORMAL)
    assert table.kind == "deduplicated"
    assert [(row.leg, row.us) for row in table.rows] == [("dispatch", 1179.0), ("combine", 2300.0)]
    assert table.rows[0].mb == pytest.approx(43.2 * 1.179)


@pytest.mark.parametrize("text", [NCCL, OLD, LOW, NORMAL])
def test_the_commands_read_them(tmp_path, text):
    path = tmp_path / "log.txt"
    path.write_text(text)
    assert kind_of(path) == "exchange"
    assert calibrate(path).exchange.dispatch.network
    assert read_exchange(path).rows


def test_nccl_slope_and_latency(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(NCCL)
    line = calibrate(path).exchange.dispatch.network[0]
    # 25 µs per 1.048576 MB, half of it leaves: 1.048576 × ½ / 25 µs = 21.0 GB/s; 45 − 25 = 20 µs
    assert 1000 / line.remote_us_per_mb == pytest.approx(20.97, abs=0.03)
    assert line.latency_us == pytest.approx(20, abs=0.3)


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text):
    for log in (text, NCCL + text, LOW + text, NORMAL + text):
        with contextlib.suppress(TableError):
            read_log("x", log)
