"""What ports and rails say in the verdict. Rows as ``read_fabric`` makes them, numbers by hand."""

import pytest
from test_analyse_ladders import rung

from pinchpoint.analyse.reading import together
from pinchpoint.report.words import Words

BANDWIDTH, LATENCY = "fabric bandwidth", "fabric latency"
CONGESTION, PATHS = "congestion or pause", "path collision or slow rail"


def port(highest, mean=None, entity="swp1", **fields):
    use = {"highest": highest, "mean": highest if mean is None else mean}
    return {"row": "port", "entity": entity, "direction": "out", "use": use, "blind_ms": 2000.0, "profile": "mixed",
            "concurrency": 32, "source": "snmp", "counts": "nic", "rail": "", **fields}  # fmt: skip


def rails(**fields):
    return {"row": "rails", "source": "snmp", "direction": "out", "counts": "nic", "profile": "mixed", "concurrency": 32,
            "max_over_mean": 1.02, "coldest_over_mean": 0.98, "coldest": "0", "collision": False,
            "words": "rail 1 carries 1.02 times the mean", **fields}  # fmt: skip


def sign(**fields):
    return {"row": "sign", "notable": True, "sign": "pause", "entity": "swp1", "profile": "mixed", "concurrency": 32,
            "share_of_time": None, **fields}  # fmt: skip


def read(*kinds):
    return {"row": "signs_read", "read": list(kinds), "not_read": []}


STORM = {"row": "storm", "words": "port swp1 of sw sends most pauses: this host does not drain. Use is low because ports "
         "are paused, not because there is room"}  # fmt: skip
COLLIDED = rails(rung=1, collision=True, coldest_over_mean=0.4, max_over_mean=1.5,
                 words="rail 3 is 95 % full while rail 1 is 40 % full: path collision, not lack of capacity")  # fmt: skip


def weighed(*rows, rungs=()):
    verdict = together(list(rungs), fabric=list(rows)).verdict
    told = {h.cause: h for h in verdict.hypotheses}
    ko = Words("ko").said
    for cause in (BANDWIDTH, LATENCY, CONGESTION, PATHS, "expert skew"):
        for text in filter(None, (told[cause].words, told[cause].would_decide) if cause in told else ()):
            assert ko.knows(text), text
    return told, verdict


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([port(0.075, 0.063)], "cleared"),
        ([port(0.7)], "not decided"),
        ([port(0.97, 0.95)], "contributes"),
        ([port(0.95, 0.6), sign()], "contributes"),  # full for a reading, and something was held back
        ([port(0.2), COLLIDED], "not decided"),
        ([port(0.2), sign()], "not decided"),
        ([port(0.2), STORM], "not decided"),  # low because paused
        ([port(0.97, 0.95, rung=1), COLLIDED], "not decided"),  # one path is full, the fabric is not
        ([read("loss")], "not decided"),
        ([], "not decided"),
    ],
)
def test_bandwidth(rows, state):
    assert weighed(*rows)[0][BANDWIDTH].state == state


def ladder(last):
    """Prefill at 8 and 16 users, tok/s; the second gives hardly more, or as much more as users."""
    return [
        rung(i, "prefill", 8192, 1, at, rate, ttft_s=0.5)
        for i, (at, rate) in enumerate([(8, 10_000), (16, last)])
    ]


def test_a_full_port_binds_where_the_ladder_stopped_rising_and_compute_does_not():
    full = port(0.99, 0.95, rung=1, profile="prefill", concurrency=16)
    told, verdict = weighed(full, rungs=ladder(10_100))
    assert verdict.cause == BANDWIDTH
    assert verdict.sentence.startswith(
        "Fabric bandwidth binds: the port with the highest reading (swp1 out) carried 95 %"
    )
    assert Words("ko").said.knows(verdict.sentence)
    assert (told["prefill compute"].state, "swp1 out is full" in told["prefill compute"].words) == (
        "not decided",
        True,
    )
    # Full, and still rising: it does not hold this load back yet.
    assert weighed(full, rungs=ladder(19_000))[0][BANDWIDTH].state == "contributes"
    # Half full: compute it is.
    half = port(0.55, 0.5, rung=1, profile="prefill", concurrency=16)
    told, _ = weighed(half, rungs=ladder(10_100))
    assert (told["prefill compute"].state, told[BANDWIDTH].state) == ("binds", "not decided")


def test_a_path_that_is_full_by_collision_does_not_make_another_rungs_full_port_bind():
    """Rung 1, past the knee: one path of several is full. Rung 0, below it: a port is full."""
    below = port(0.99, 0.95, rung=0, profile="prefill", concurrency=8)
    past = port(0.99, 0.95, entity="swp2", rung=1, profile="prefill", concurrency=16)
    rising = [
        rung(i, "prefill", 8192, 1, at, r, ttft_s=0.5)
        for i, (at, r) in enumerate([(8, 5_000), (16, 10_000), (32, 10_100)])
    ]
    told, _ = weighed(below, past, COLLIDED, rungs=rising)
    assert told[BANDWIDTH].state == "contributes"
    assert told[PATHS].state == "binds"


def test_a_full_port_is_not_the_decode_step():
    rungs = [
        rung(i, "decode", 128, 2048, at, rate, ttft_s=0.5)
        for i, (at, rate) in enumerate([(8, 100), (16, 101)])
    ]
    full = port(0.99, 0.95, rung=1, profile="decode", concurrency=16)
    told, verdict = weighed(full, rungs=rungs)
    assert (told["decode step"].state, verdict.cause) == ("not decided", BANDWIDTH)
    assert weighed(rungs=rungs)[0]["decode step"].state == "binds"


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([read("loss", "pause")], "cleared"),
        ([read("loss", "pause time")], "cleared"),
        ([read("loss")], "not decided"),  # no port that counts pauses was read
        ([port(0.2)], "not decided"),  # nothing but octets
        (
            [sign(sign="retransmission"), read("retransmission")],
            "not decided",
        ),  # a few: what they cost is open
        ([sign(sign="pause time", share_of_time=0.04), read("pause time")], "not decided"),
        ([sign(sign="pause time", share_of_time=0.3), read("pause time")], "contributes"),
        ([STORM, read("loss", "pause")], "contributes"),
        ([], None),
    ],
)
def test_congestion(rows, state):
    told, _ = weighed(*rows)
    assert (told[CONGESTION].state if CONGESTION in told else None) == state


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([port(0.2), rails()], "cleared"),
        ([port(0.2)], "not decided"),  # nobody says which are side by side
        ([port(0.2), rails(max_over_mean=1.3, words="rail 3 carries 1.30 times the mean")], "not decided"),
        ([port(0.95, rung=1), COLLIDED], "contributes"),
        # A rail at a quarter: full at its own speed, or perhaps asked for no more.
        ([port(0.97, rail="2"), rails(coldest="2", coldest_over_mean=0.25)], "contributes"),
        ([port(0.3, rail="2"), rails(coldest="2", coldest_over_mean=0.25)], "not decided"),
        ([], None),
    ],
)
def test_paths(rows, state):
    told, _ = weighed(*rows)
    assert (told[PATHS].state if PATHS in told else None) == state


def test_a_collision_binds_where_the_ladder_stopped_rising():
    full = port(0.99, 0.95, rung=1, profile="prefill", concurrency=16)
    _, verdict = weighed(full, COLLIDED, rungs=ladder(10_100))
    assert verdict.cause == PATHS
    assert Words("ko").said.knows(verdict.sentence)


def test_a_cleared_bandwidth_names_its_blind_limit_and_leaves_latency_open():
    told, _ = weighed(port(0.075, 0.063))
    assert "2000 ms" in told[BANDWIDTH].words
    assert "latency" in told[BANDWIDTH].words
    assert told[LATENCY].state == "not decided"


def test_skew_is_open_where_experts_are_known_and_silent_where_they_are_not():
    told, _ = weighed({"row": "expected"}, port(0.2))
    assert told["expert skew"].state == "not decided"
    assert "expert skew" not in weighed(port(0.2))[0]
