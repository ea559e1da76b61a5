"""What tokens cost on the wire, and what a faster network could give: numbers worked out by hand or published."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinchpoint.analyse.expected import (
    ExpectedExchange,
    Sends,
    expected_exchange,
    expected_row,
    message_sizes,
)
from pinchpoint.analyse.fabric_causes import bandwidth, latency
from pinchpoint.analyse.findings import Ceiling, Findings, RungReading, Stats
from pinchpoint.analyse.headroom import ExchangeLatency, exchange_latency, headroom_rows, stressed
from pinchpoint.analyse.wirecost import answers, cost_rows, same_price
from pinchpoint.analyse.wirefit import Paid, Reading, Split, fit, grid_half

LINE = 16 * 800e9 / 8  # the reference cluster: 16 ports of 800 Gb/s (assumed), octets/s
HALF = 0.00125 * LINE  # of a reading given to a quarter of a percent
TOKENS = 1 + 128 / 2048  # computed per output token of decode 128/2048
AT_32 = Reading(0.0100 * LINE, HALF, 665 * TOKENS, 1000 / 46.7)
AT_64 = Reading(0.0125 * LINE, HALF, 1217 * TOKENS, 1000 / 52.2)
SILENT = Reading(0.0, HALF, 0.0, 0.0)


def stats(mean):
    return Stats(n=10, mean=mean)


def rung(number, profile, isl, osl, concurrency, *, inputs=None, outputs=None, gap=None, valid=True):
    return RungReading(
        rung=number, profile=profile, isl=isl, osl=osl, concurrency=concurrency, requests=9, ok=9, failed=0, valid=valid,
        window_s=100.0, start_ns=0, end_ns=100 * 10**9, input_tok_s=inputs, output_tok_s=outputs,
        gap_ms=None if gap is None else stats(gap),
    )  # fmt: skip


def ports(number, profile, concurrency, share, *, half=0.00125, counts="switch", direction="in", **more):
    """Rows of one port that stands for sixteen, known to ``half`` of line rate: one refresh of it at either edge."""
    mean, refresh_ms = share * LINE * 8, 1000.0
    head = {"rung": number, "profile": profile, "concurrency": concurrency, "source": "snmp://l"}
    highest = half * LINE * 8 * 100.0  # × 1 s / 100 s of window = half
    port = {
        "row": "port", **head, "entity": "E1", "direction": direction, "counts": counts, "additive": True,
        "mean_bps": mean, "highest_bps": highest, "refresh_ms": refresh_ms, "octets": mean / 8 * 100,
        "blind_ms": 2000.0, "use": {"mean": share, "highest": 1.2 * share}, **more,
    }  # fmt: skip
    total = {
        "row": "total", **head, "direction": direction, "counts": counts, "ports": 1, "mean_bps": mean,
        "octets": mean / 8 * 100, "incomplete": [],
    }  # fmt: skip
    return [port, total]


DECODE = [
    rung(0, "decode", 128, 2048, 32, inputs=665 / 16, outputs=665.0, gap=46.7),
    rung(1, "decode", 128, 2048, 64, inputs=1217 / 16, outputs=1217.0, gap=52.2),
]
DECODE_PORTS = [*ports(0, "decode", 32, 0.0100), *ports(1, "decode", 64, 0.0125)]


def of_row(rows, name):
    return [row for row in rows if row["row"] == name]


# -- the published rows ---------------------------------------------------------------------------------------------


def test_the_reference_clusters_cost_per_token_falls_to_068_within_what_its_readings_allow():
    """(1.25 ∓ 0.125)/(1.00 ± 0.125) × 665/1217 = 0.546 to 0.859."""
    first, second = of_row(cost_rows(DECODE_PORTS, DECODE, gpus=16), "cost")
    assert first["relative_cost"] == 1.0
    assert second["relative_cost"] == pytest.approx(0.683, abs=0.001)
    assert (second["relative_low"], second["relative_high"]) == pytest.approx((0.546, 0.859), abs=0.001)
    assert first["steps_s"] == pytest.approx(21.41, abs=0.01)
    assert first["tokens_per_gpu_step"] == pytest.approx(665 * TOKENS * 0.0467 / 16)
    assert "packets" in first["refused"]["frame_octets"]


def test_two_readings_of_a_quarter_percent_leave_all_three_terms_open():
    found = fit([AT_32, AT_64])
    assert found.scatter == 1.0
    assert found.per_token.low == found.per_step.low == found.always.low == 0.0
    # all of the lower ends of the first: 1.125 % = c; of both, b at most by the steepest line, 0.875 % to 1.375 %
    assert found.always.high == pytest.approx(0.01125 * LINE)
    assert found.per_token.high == pytest.approx(
        14.34e6, rel=1e-3
    )  # (22 − 0.8947·14)/(1293.1 − 0.8947·706.6)
    assert not found.per_step.shown


def test_silence_between_rungs_shows_that_steps_are_paid_for():
    """With c at most 0.125 % of line rate, b alone reaches 1.125 % at 32 only where 64 passes 1.375 %."""
    found = fit([AT_32, AT_64, SILENT])
    assert found.always.high == pytest.approx(HALF)
    assert found.per_step.shown
    assert found.per_step.low < 463e6 < found.per_step.high  # (16 − 665·1.0625·8.6)/21.4 with c = 0
    prefill = Reading(0.063 * LINE, grid_half([6.3]) / 100 * LINE, 12950.0, 12950 / 16384)
    all_four = fit([AT_32, AT_64, SILENT, prefill])
    assert all_four.per_token.value == pytest.approx(7.7e6, rel=0.03)  # 6.3 % / 12,950, less a few steps
    assert all_four.per_token.high - all_four.per_token.low < 0.05 * all_four.per_token.value


@pytest.mark.parametrize(
    ("values", "half", "why"),
    [
        ([1.00, 1.25], 0.125, "a grid of quarters"),
        ([1.0, 3.0, 2.0], 0.5, "whole percents"),
        ([6.38, 6.24], 0.01, "a grid of 0.02"),
        ([6.3], 0.05, "one value: its last place"),
        ([6.3, 6.3], 0.05, "the same"),
        ([0.0, 1.5], 0.05, "zero lies on every grid"),
        ([], 0.0, "nothing"),
    ],
)
def test_the_grid_that_readings_lie_on(values, half, why):
    assert grid_half(values) == pytest.approx(half), why


# -- the fit --------------------------------------------------------------------------------------------------------

paid = st.floats(0.0, 10.0)


@settings(max_examples=40, deadline=None)
@given(
    paid, paid, paid,
    st.lists(st.tuples(st.floats(1.0, 30.0), st.floats(5.0, 100.0), st.floats(-1.0, 1.0)), min_size=2, max_size=6),
)  # fmt: skip
def test_what_was_really_paid_is_never_outside_the_interval(a, b, c, rungs):
    readings = []
    for steps, tokens, error in rungs:
        true = a * steps + b * tokens + c
        half = 0.05 * true + 0.1
        readings.append(Reading(max(0.0, true + error * half), half, tokens, steps))
    found = fit(readings)
    assert found.scatter == 1.0
    for term, true in ((found.per_step, a), (found.per_token, b), (found.always, c)):
        slack = 1e-6 * max(1.0, max(r.octets_s for r in readings))
        assert term.low - slack <= true <= term.high + slack
        assert term.low <= term.value <= term.high


def test_readings_that_no_split_explains_say_by_how_much():
    """Twice the tokens at the same steps for fewer octets: 0.2 short with halves of 0.01 that add up to 0.02."""
    found = fit([Reading(1.0, 0.01, 10.0, 5.0), Reading(0.8, 0.01, 20.0, 5.0)])
    assert found.scatter == pytest.approx(10.0, rel=0.02)


def test_without_steps_nothing_is_said_of_them():
    found = fit([Reading(1.0, 0.1, 10.0), Reading(2.0, 0.1, 20.0)])
    assert found.per_step is None
    assert found.per_token.low < 0.1 < found.per_token.high
    assert isinstance(fit([AT_32]), str)


def test_prefill_and_decode_at_one_price_and_at_two():
    decode = [Reading(5 * t + 2, 0.05, t, 1.0) for t in (10.0, 20.0, 40.0)]
    same = same_price([Reading(5 * t, 0.05, t, 0.0) for t in (100.0, 200.0)], decode)
    assert same.low < 1.0 < same.high
    double = same_price([Reading(10 * t, 0.05, t, 0.0) for t in (100.0, 200.0)], decode)
    assert double.low < 2.0 < double.high
    assert double.low > 1.5
    assert "not driven" in same_price([], decode)
    assert "may be nothing" in same_price(decode, [Reading(10.0, 1.0, 10.0, 5.0)])


# -- rows -----------------------------------------------------------------------------------------------------------


def test_each_link_is_counted_once_by_its_best_witness():
    """Switch ports and NICs saw the same octets: they are not added, and the NIC's own count stands."""
    both = [*ports(0, "decode", 32, 0.01), *ports(0, "decode", 32, 0.0101, counts="physical", direction="out"),
            *ports(0, "decode", 32, 0.0101, direction="out")]  # fmt: skip
    (row,) = of_row(cost_rows(both, DECODE[:1]), "cost")
    assert (row["counts"], row["direction"]) == ("physical", "out")
    # a management interface beside a switch that saw everything is no witness
    thin = [*ports(0, "decode", 32, 0.01), *ports(0, "decode", 32, 1e-5, counts="physical", direction="out")]
    (row,) = of_row(cost_rows(thin, DECODE[:1]), "cost")
    assert (row["counts"], row["direction"]) == ("switch", "in")


def test_steps_come_from_the_engine_where_it_counts_them():
    prefill = rung(3, "prefill", 8192, 1, 16, inputs=12950.0)
    rows = ports(3, "prefill", 16, 0.063)
    engine = [{"row": "engine", "rung": 3, "engine_steps_s": 0.79}]
    assert of_row(cost_rows(rows, [prefill], engine), "cost")[0]["steps_s"] == 0.79
    (row,) = of_row(cost_rows(rows, [prefill]), "cost")
    assert row["steps_s"] is None
    assert "steps were not counted" in row["refused"]["tokens_per_gpu_step"]


def test_why_the_cost_falls_has_several_answers_and_headers_only_as_much_as_frames_grew():
    """Frames of 300 and 1,000 octets with 78 of headers: 300/222 against 1000/922 is 20 % less."""
    framed = [
        *ports(0, "decode", 32, 0.0100, frame_octets=300.0, packets=1e6),
        *ports(1, "decode", 64, 0.0125, frame_octets=1000.0, packets=1e6),
    ]
    rows = cost_rows(framed, DECODE, gpus=16)
    (paid_row,) = of_row(rows, "paid")
    assert of_row(rows, "cost")[0]["frame_octets"] == 300
    text = " | ".join(paid_row["answers"])
    assert "frame headers explain 20 % of the cost" in text
    assert "may be paid per step" in text
    assert "may be paid always" in text
    silent = cost_rows(framed, DECODE, gpus=16, idle={("switch", "in"): SILENT})
    text = " | ".join(of_row(silent, "paid")[0]["answers"])
    assert "something is paid per step" in text
    assert "nearly silent between rungs" in text


def test_a_cost_that_does_not_fall_needs_no_answer():
    flat = [*ports(0, "decode", 32, 0.01), *ports(1, "decode", 64, 0.0183)]
    assert of_row(cost_rows(flat, DECODE), "paid")[0]["answers"] == []
    split = Split(None, Paid(1, 0, 2), Paid(0, 0, 0), 1.0, 2)
    assert answers([], split) == []


def test_the_share_of_time_in_prefill_is_where_the_mean_lies_between_floor_and_plateau():
    """Decode 1 %, prefill 6 %, mixed 2 %: a fifth; by tokens 2,590 of 12,950, a fifth too."""
    readings = [
        *DECODE,
        rung(2, "prefill", 8192, 1, 32, inputs=12950.0),
        rung(3, "mixed", 4096, 512, 32, inputs=2590.0, outputs=324.0, gap=68.0),
    ]
    fabric = [*DECODE_PORTS, *ports(2, "prefill", 32, 0.06), *ports(3, "mixed", 32, 0.02)]
    (share,) = of_row(cost_rows(fabric, readings), "prefill_share")
    assert share["from_ports"] == pytest.approx(0.2)
    assert share["from_tokens"] == pytest.approx(0.2)
    assert share["half"] == pytest.approx(3 * 0.125 / 5)
    assert (share["prefill_rung"], share["decode_rung"]) == (2, 0)


# -- headroom -------------------------------------------------------------------------------------------------------


def test_headroom_is_the_hottest_ports_use_and_the_exchanges_latency():
    """1 % of a step of 46.7 ms is 0.467 ms of wire; 6,000 µs of latency in it are 12.8 %."""
    fabric = [*DECODE_PORTS, *cost_rows(DECODE_PORTS, DECODE)]
    first, _ = headroom_rows(
        fabric, DECODE, ExchangeLatency(6000.0, 5000.0, 8000.0, "an exchange of 2 nodes")
    )
    assert first["bandwidth_share"] == 0.01
    assert first["wire_ms_per_step"] == pytest.approx(0.467)
    assert first["burst_over_mean"] == pytest.approx(100)
    assert first["latency_share"] == pytest.approx(6.0 / 46.7)
    assert (first["latency_low"], first["latency_high"]) == pytest.approx((5.0 / 46.7, 8.0 / 46.7))
    assert "no exchange model" in headroom_rows(fabric, DECODE)[0]["refused"]["latency_share"]


def test_the_hottest_port_of_a_rung_bounds_it_in_either_direction():
    cool = ports(0, "decode", 32, 0.01)[0]
    hot = {**cool, "entity": "E2", "direction": "out", "use": {"mean": 0.03, "highest": 0.06}}
    unknown = {**cool, "entity": "E3", "use": None}
    (row,) = headroom_rows([cool, hot, unknown], DECODE[:1])
    assert (row["port"], row["direction"], row["bandwidth_share"]) == ("E2", "out", 0.03)
    assert row["highest_over_mean"] == pytest.approx(2.0)
    assert "steps were not counted" in row["refused"]["wire_ms_per_step"]


def found(model=None, ceilings=()):
    fabric = [*DECODE_PORTS, *cost_rows(DECODE_PORTS, DECODE)]
    fabric += headroom_rows(fabric, DECODE, model)
    return Findings(rungs=DECODE, fabric=fabric, ceilings=list(ceilings))


def test_bandwidth_is_cleared_while_latency_stays_open():
    cleared, open_one = bandwidth(found()), latency(found())
    assert cleared.state == "cleared"
    assert (
        "its bandwidth would give back at most 1.2 % of the time: 0.653 ms of a step of 52.2 ms"
        in cleared.words
    )
    assert "what latency costs is not decided" in cleared.words
    assert "not built to stress the network" in cleared.words
    assert open_one.state == "not decided"
    assert "probe exchange" in open_one.would_decide
    assert latency(Findings()) is None


@pytest.mark.parametrize(
    ("us", "state"),
    [
        ((6000.0, 5500.0, 8000.0), "contributes"),
        ((1000.0, 800.0, 1500.0), "cleared"),
        ((5000.0, 2000.0, 9000.0), "not decided"),
    ],
)  # fmt: skip
def test_latency_is_decided_by_a_model_whose_interval_allows_it(us, state):
    model = ExchangeLatency(*us, "a fit of 4 rows")
    assert latency(found(model)).state == state
    assert "a fit of 4 rows" in latency(found(model)).words
    assert "not decided" not in bandwidth(found(model)).words


def test_a_load_stresses_the_network_where_prefill_reached_its_plateau_with_the_ports_read():
    prefill = rung(2, "prefill", 8192, 1, 32, inputs=12950.0)
    fabric = ports(2, "prefill", 32, 0.06)
    fabric += headroom_rows(fabric, [prefill])
    top = Ceiling(
        profile="prefill", isl=8192, osl=1, metric="input_tok_s", state="plateau", value=12950.0, knee=16
    )
    assert stressed(Findings(rungs=[prefill], fabric=fabric, ceilings=[top])) is True
    low = Ceiling(
        profile="prefill", isl=8192, osl=1, metric="input_tok_s", state="not reached", value=12950.0
    )
    assert stressed(Findings(rungs=[prefill], fabric=fabric, ceilings=[low])) is False
    assert stressed(Findings()) is None


def test_an_exchange_latency_that_cannot_be_read_is_none():
    assert exchange_latency({}) is None
    assert exchange_latency({"exchange_latency": {"us_per_step": "x"}}) is None
    told = {"us_per_step": 1.0, "low": 0.5, "high": 2.0, "origin": "o"}
    assert exchange_latency({"exchange_latency": told}) == ExchangeLatency(1.0, 0.5, 2.0, "o")


# -- which exchange -------------------------------------------------------------------------------------------------


def sends(*bytes_per_token):
    return [Sends(f"e{n}", "bf16", value) for n, value in enumerate(bytes_per_token)]


def told(*bytes_per_token):
    return ExpectedExchange("config.json", 2, 16, 4096.0, 0.5, sends(*bytes_per_token))


def priced(low, high, frame=None):
    cost = {"row": "cost", "frame_octets": frame, "tokens_per_gpu_step": 3.0, "refused": {}}
    return [cost, {"row": "paid", "per_token": {"value": (low + high) / 2, "low": low, "high": high}}]


def test_an_exchange_fits_where_it_sends_what_was_measured_less_headers():
    """7.5 to 7.8 MB in frames of 4,174 octets, 78 of which are headers: 7.36 to 7.65 MB; 5 % more at either end."""
    row = expected_row(priced(7.5e6, 7.8e6, 4174.0), told(6.9e6, 7.1e6, 7.5e6, 8.0e6, 8.2e6))
    assert row["payload_share"] == pytest.approx(4096 / 4174)
    assert row["measured"]["low"] == pytest.approx(7.36e6, rel=1e-3)
    assert [each["fits"] for each in row["sends"]] == [False, True, True, True, False]
    assert row["sends"][2]["over_measured"] == pytest.approx(7.5 / (7.65 * 4096 / 4174))
    assert row["said"] == "several of them send what was measured"


@pytest.mark.parametrize(
    ("expected", "words"),
    [((1.0, 2.0), "none of them"), ((1.0, 10.0), "one of them"), ((9.0, 10.0), "every exchange fits")],
)
def test_what_is_said_of_the_exchanges(expected, words):
    assert words in expected_row(priced(8.0, 11.0), told(*expected))["said"]


def test_nothing_is_expected_without_a_shape_or_a_fit():
    assert expected_row(priced(1.0, 2.0), None) is None
    assert expected_row([{"row": "paid", "per_token": None}], told(1.0)) is None
    cost = {"row": "cost", "frame_octets": None, "octets_per_token": 9.0, "octets_per_token_half": 1.0}
    cheapest = expected_row([cost, {**cost, "octets_per_token": 19.0}], told(10.4, 11.0))
    assert cheapest["measured"] == {"value": None, "low": 0.0, "high": 10.0}
    assert [each["fits"] for each in cheapest["sends"]] == [True, False]
    assert expected_exchange({"exchange_expected": {"nodes": "two"}}) is None
    rows = priced(1.0, 2.0)
    message_sizes(rows, None)
    assert rows[0]["message_bytes"] is None
    assert "--config-json" in rows[0]["refused"]["message_bytes"]
    message_sizes(rows, told(1.0))
    assert rows[0]["message_bytes"] == 3 * 0.5 * 4096
