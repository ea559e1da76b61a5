"""Whole rungs against endpoints of known timing: what is sent, when, and what the record holds."""

import asyncio
import itertools
import threading

import pytest
from drive_kit import HEAD, USAGE, Arrivals, chunk, closed, open_loop, plan_for, token

from pinchpoint.engines.scripted import Reply, Script

FAST = Reply(ttft_ms=5, gap_ms=1)


def test_every_request_has_a_row_and_every_token_an_arrival(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    driven = drive(plan_for(server.url), closed(3, 17, osl=5))
    done = driven.done
    truth = server.truth()
    assert done.sent == done.ok == len(truth)
    assert driven.rows("count(*), count(DISTINCT request_id), bool_and(ok)") == [(done.sent, done.sent, True)]
    # 17 measured, sent after the warm-up of all slots; before that at least one each.
    assert driven.rows("count(*)", rest=f"WHERE sent_ns >= {done.warmup_end_ns}") == [(17,)]
    assert driven.rows("sum(output_tokens)") == [(sum(sum(sent.event_tokens) for sent in truth),)]
    assert driven.rows("count(*), min(tokens), max(tokens)", "arrivals") == [
        (sum(len(sent.event_ns) for sent in truth), 1, 1)
    ]
    assert driven.rows("DISTINCT prompt_tokens, asked_isl") == [(8, 8)]


def test_times_are_the_servers_own_within_the_clock_of_the_host(scripted, drive):
    """Both clocks are the host's monotonic one: no event is seen before it was sent, or long after."""
    server = scripted(Script(replies=(Reply(ttft_ms=30, gap_ms=10),)), own_process=True)
    driven = drive(plan_for(server.url), closed(1, 3, osl=6))
    sent = [t for truth in server.truth() for t in truth.event_ns]
    seen = [t for (t,) in driven.rows("t_ns", "arrivals", "ORDER BY t_ns")]
    late = [arrived - left for arrived, left in zip(seen, sorted(sent), strict=True)]
    assert min(late) > 0
    assert sorted(late)[len(late) // 2] < 50_000_000


def test_the_warm_up_wave_is_staggered_and_the_rest_is_not(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    driven = drive(plan_for(server.url), closed(4, 8, osl=16))
    asked = [osl for (osl,) in driven.rows("asked_osl", rest="ORDER BY request_id")]
    assert sorted(asked[:4]) == [4, 8, 12, 16]  # slots that start at one moment may start in any order
    assert set(asked[4:]) == {16}


def test_no_stagger(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    driven = drive(plan_for(server.url, load={"stagger": False}), closed(4, 8, osl=16))
    assert driven.rows("DISTINCT asked_osl") == [(16,)]


def test_a_closed_loop_holds_its_concurrency_until_the_budget_is_spent(scripted, drive):
    """No slot rests while requests are left: from the first send to the last, 5 are in flight."""
    server = scripted(Script(replies=(Reply(ttft_ms=20, gap_ms=2),)))
    driven = drive(plan_for(server.url), closed(5, 23, osl=4))
    events = sorted(
        [(sent, 1) for (sent,) in driven.rows("sent_ns")] + [(end, -1) for (end,) in driven.rows("end_ns")]
    )
    running, most = 0, 0
    for _, change in events:
        running += change
        most = max(most, running)
    assert most == 5
    # The wait between the end of one request and the next send of its slot, of all slots together.
    idle = driven.rows("sum(sent_ns - due_ns) / 1e6 / count(*)")[0][0]
    assert idle < 100


def test_duration_instead_of_count(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    driven = drive(plan_for(server.url), closed(2, None, duration_s=0.5))
    done = driven.done
    assert done.ok == done.sent > 4
    assert 0 < done.last_sent_ns - done.warmup_end_ns <= 550_000_000


def test_no_warm_up_counts_from_the_start(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    done = drive(plan_for(server.url), closed(2, 6, warmup=0)).done
    assert done.warmup_end_ns == done.start_ns
    assert done.sent == 6


def test_workers_share_one_rung(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    driven = drive(plan_for(server.url, workers=3), closed(7, 31, osl=14))
    done = driven.done
    assert [worker.worker for worker in done.workers] == [0, 1, 2]
    assert driven.rows("count(DISTINCT request_id), count(DISTINCT worker)") == [(done.sent, 3)]
    # 7 slots over 3 workers, staggered as one wave of 7.
    first = driven.rows("asked_osl", rest="WHERE (request_id & (1 << 28) - 1) < 3 - (worker > 0)::INT")
    assert sorted(osl for (osl,) in first) == [2, 4, 6, 8, 10, 12, 14]
    prompts = [truth.prompt_start for truth in server.truth()]
    assert len(set(prompts)) == len(prompts)


def test_more_workers_than_streams_are_not_used(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    assert len(drive(plan_for(server.url, workers=4), closed(2, 4)).done.workers) == 2


def test_several_urls_are_taken_in_turn_and_their_connect_times_kept(scripted, drive):
    servers = [scripted(Script(replies=(FAST,))) for _ in range(3)]
    driven = drive(plan_for(*(server.url for server in servers)), closed(6, 24))
    assert sorted(driven.rows("endpoint, count(*) >= 8", rest="GROUP BY ALL")) == [
        (0, True),
        (1, True),
        (2, True),
    ]
    assert all(ns > 0 for ns in driven.done.connect_ns)


def test_connections_are_kept_alive(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    done = drive(plan_for(server.url), closed(4, 40)).done
    assert sum(worker.connections for worker in done.workers) == 4


def test_a_connection_that_waits_for_its_next_request_is_kept(scripted, drive):
    """Three requests a second apart: the sweep visits the idle connection several times in between."""
    server = scripted(Script(replies=(FAST,)))
    plan = plan_for(server.url, arrivals=Arrivals("constant"))
    done = drive(plan, open_loop(1.0, 3, cap=1)).done
    assert done.ok == 3
    assert sum(worker.connections for worker in done.workers) == 1


def test_marks_say_how_it_went(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    driven = drive(plan_for(server.url), closed(2, 6))
    done = driven.done
    assert driven.rows("stage, start_ns, end_ns, note", "marks") == [
        ("warmup", done.start_ns, done.warmup_end_ns, ""),
        ("steady", done.warmup_end_ns, done.last_sent_ns, ""),
        ("drain", done.last_sent_ns, done.end_ns, ""),
        ("rung", done.start_ns, done.end_ns, ""),
    ]


def test_the_client_watches_itself(scripted, drive):
    server = scripted(Script(replies=(Reply(ttft_ms=100, gap_ms=20),)))
    driven = drive(plan_for(server.url), closed(2, 4, osl=20))
    found = dict(driven.rows("metric, count(*) > 3", "samples", "WHERE source = 'client' GROUP BY ALL"))
    assert found.pop("connect") is False  # two connections
    assert found == {"loop_lag": True, "cpu": True, "in_flight": True}
    lag = driven.rows("entity, unit, min(value) >= 0", "samples", "WHERE metric = 'loop_lag' GROUP BY ALL")
    assert lag == [("worker-0", "ns", True)]
    made = driven.rows("entity, count(*), min(value) > 0", "samples", "WHERE metric = 'connect' GROUP BY ALL")
    assert made == [("endpoint-0", 2, True)]
    # Host pressure is a counter, unchanged: what it means is for the reader.
    raw = driven.rows("raw", "samples", "WHERE source = 'host' ORDER BY t_ns")
    assert raw == sorted(raw)


def test_progress_is_told_while_it_runs(scripted, drive):
    server = scripted(Script(replies=(Reply(ttft_ms=50, gap_ms=20),)))
    seen = []
    done = drive(plan_for(server.url, workers=2), closed(4, 8, osl=30), on_progress=seen.append).done
    assert len(seen) >= 4
    assert {"warmup", "steady"} <= {str(progress.stage) for progress in seen}
    assert max(progress.in_flight for progress in seen) == 4
    assert seen[-1].sent <= done.sent
    assert seen[-1].longest_gap_ns >= 15_000_000


# -- open loop ------------------------------------------------------------------------------------------------------


def test_coordinated_omission(scripted, drive):
    """500 ms of service, a request due every 100 ms, 8 of them, one in flight at most (kubernetes-sigs/inference-perf
    #188, vllm-project/vllm#54101). Request i is due at 100·i and sent at 500·i: delays 0, 400, … 2800, mean 1400;
    end to end from due 500 + 400·i, mean 1900, maximum 3300; from sent 500."""
    server = scripted(Script(replies=(Reply(ttft_ms=500),)), own_process=True)
    plan = plan_for(server.url, arrivals=Arrivals("constant", (10.0,), max_in_flight=1))
    driven = drive(plan, open_loop(10.0, 8, cap=1))
    (delay, from_due, longest, from_sent), *_ = driven.rows(
        "avg(sent_ns - due_ns) / 1e6, avg(end_ns - due_ns) / 1e6, max(end_ns - due_ns) / 1e6,"
        " avg(end_ns - sent_ns) / 1e6"
    )
    # No server answers early, so these are floors; what a busy machine adds, it adds to every request after it.
    assert 1400 <= delay < 1400 * 1.3
    assert 1900 <= from_due < 1900 * 1.3
    assert 3300 <= longest < 3300 * 1.3
    assert 500 <= from_sent < 500 * 1.3
    assert from_due == pytest.approx(delay + from_sent)
    late = "bool_and((sent_ns - due_ns > 20000000) = (warnings LIKE '%sent_late%')), count(*) FILTER (warnings <> '') >= 7"
    assert driven.rows(late) == [(True, True)]
    due = [t for (t,) in driven.rows("due_ns", rest="ORDER BY due_ns")]
    assert [t - due[0] for t in due] == [i * 100_000_000 for i in range(8)]


def test_an_open_loop_does_not_wait_for_answers(scripted, drive):
    server = scripted(Script(replies=(Reply(ttft_ms=400),)))
    plan = plan_for(server.url, arrivals=Arrivals("constant", (50.0,)))
    driven = drive(plan, open_loop(50.0, 20))
    # All 20 are due within 380 ms, before the first answer at 400.
    assert driven.rows("max(sent_ns) < min(first_token_ns)") == [(True,)]


def test_open_loop_shares_make_the_one_schedule(scripted, drive):
    server = scripted(Script(replies=(FAST,)))
    plan = plan_for(server.url, workers=2, arrivals=Arrivals("constant", (50.0,)))
    driven = drive(plan, open_loop(50.0, 11, warmup=2))
    due = [t for (t,) in driven.rows("due_ns", rest="ORDER BY due_ns")]
    assert [t - due[0] for t in due] == [i * 20_000_000 for i in range(13)]
    assert driven.done.warmup_end_ns == due[0] + 2 * 20_000_000  # the third of all is measured


def test_a_trace_is_replayed_with_its_own_lengths(scripted, drive, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"timestamp": 0, "input_length": 700, "output_length": 3, "hash_ids": [1, 2]}\n'
        '{"timestamp": 100, "input_length": 600, "output_length": 2, "hash_ids": [1, 3]}\n'
        '{"timestamp": 150, "input_length": 9, "output_length": 5, "hash_ids": [4]}\n'
    )
    server = scripted(Script(replies=(FAST,)))
    driven = drive(plan_for(server.url, arrivals=Arrivals("trace", trace=str(trace))), open_loop(0.0, None))
    assert driven.rows("asked_isl, prompt_tokens, asked_osl, output_tokens", rest="ORDER BY due_ns") == [
        (700, 700, 3, 3), (600, 600, 2, 2), (9, 9, 5, 5),
    ]  # fmt: skip
    due = [t for (t,) in driven.rows("due_ns", rest="ORDER BY due_ns")]
    assert [t - due[0] for t in due] == [0, 100_000_000, 150_000_000]


# -- ends -----------------------------------------------------------------------------------------------------------


def run_and_cancel(folder_plan, rung, presses, dialect, tmp_path):
    from pinchpoint.drive.fleet import open_fleet
    from pinchpoint.record.folder import RunFolder

    folder = RunFolder.create(tmp_path / "cancelled", folder_plan, {})
    with open_fleet(folder_plan, dialect, folder) as fleet:
        streaming = threading.Event()

        def on_progress(progress):
            if progress.tokens and not streaming.is_set():
                streaming.set()
                for _ in range(presses):
                    fleet.cancel()

        done = fleet.run(rung, on_progress)
    folder.close_rung(done.marks())
    return done, folder


def test_cancel_lets_what_is_in_flight_end(scripted, tmp_path):
    from drive_kit import IDS

    server = scripted(Script(replies=(Reply(ttft_ms=10, gap_ms=20),)))
    done, folder = run_and_cancel(plan_for(server.url), closed(3, 300, osl=50), 1, IDS, tmp_path)
    assert done.cancelled
    assert done.ok == done.sent == len(server.truth())
    assert done.sent < 10
    assert folder.columns("SELECT count(*) AS n FROM requests WHERE ok")["n"].tolist() == [done.sent]


def test_cancel_twice_cuts_off_and_keeps_what_came(scripted, tmp_path):
    from drive_kit import IDS

    server = scripted(Script(replies=(Reply(ttft_ms=10, gap_ms=20),)))
    done, folder = run_and_cancel(plan_for(server.url), closed(3, 30, osl=2000), 2, IDS, tmp_path)
    assert done.cancelled
    found = folder.columns(
        "SELECT count(*) AS n, min(token_events) AS least FROM requests WHERE error_kind = 'cancelled'"
    )
    assert found["n"].tolist() == [3]
    assert found["least"].tolist()[0] > 0
    assert folder.columns("SELECT count(*) AS n FROM arrivals")["n"].tolist()[0] > 3


def test_the_drain_limit_ends_a_hung_server(scripted, drive):
    """The last requests never answer: cut off when the limit has passed, as time-outs, and it is said."""
    server = scripted(Script(replies=(FAST, FAST, FAST, FAST, FAST, Reply(silent=True))))
    driven = drive(plan_for(server.url, load={"drain_limit_s": 0.5}), closed(1, 5))
    assert driven.done.failed == {"timeout": 1}
    assert "cut off" in driven.done.note


def test_an_idle_stream_times_out(scripted, drive):
    server = scripted(Script(replies=(Reply(silent=True),)))
    driven = drive(plan_for(server.url, endpoint={"idle_timeout_s": 0.3}), closed(1, 1, warmup=0))
    assert driven.done.failed == {"timeout": 1}
    assert "not one byte" in driven.rows("error_message")[0][0]


@pytest.mark.parametrize("beat", [b": ping\n\n", token("")], ids=["comments", "events without text"])
@pytest.mark.parametrize("first", [b"", token()], ids=["before the first token", "after it"])
def test_heartbeats_are_no_tokens(odd, drive, beat, first):
    """A byte every 50 ms, and never a token more: the request ends when none has come for ten idle limits."""

    async def beats(n, body, writer):
        writer.write(HEAD + (chunk(first) if first else b""))
        for _ in range(400):
            await asyncio.sleep(0.05)
            writer.write(chunk(beat))
            await writer.drain()

    driven = drive(plan_for(odd(beats).url, endpoint={"idle_timeout_s": 0.4}), closed(1, 1, warmup=0))
    assert driven.done.failed == {"timeout": 1}
    assert "not one token for 4.0 s, though bytes came" in driven.rows("error_message")[0][0]


def test_heartbeats_prove_that_a_connection_is_alive(odd, drive):
    """Three idle limits of comments before the first token, as a server sends that works on a long prompt."""

    async def late(n, body, writer):
        writer.write(HEAD)
        for _ in range(24):
            await asyncio.sleep(0.05)
            writer.write(chunk(b": ping\n\n"))
            await writer.drain()
        writer.write(chunk(token() + token(finish="length") + USAGE + b"data: [DONE]\n\n") + b"0\r\n\r\n")

    driven = drive(plan_for(odd(late).url, endpoint={"idle_timeout_s": 0.4}), closed(1, 1, osl=2, warmup=0))
    assert driven.done.failed == {}
    assert driven.rows("first_token_ns - sent_ns")[0][0] >= 1.2e9


def test_a_stream_of_tokens_alike_is_never_without_one(odd, drive):
    """Three times the limit, every token like the one before, with nothing parsed in between."""

    async def steady(n, body, writer):
        writer.write(HEAD)
        for _ in range(90):
            await asyncio.sleep(0.05)
            writer.write(chunk(token()))
            await writer.drain()
        writer.write(chunk(token(finish="length") + b"data: [DONE]\n\n") + b"0\r\n\r\n")

    driven = drive(
        plan_for(odd(steady).url, endpoint={"idle_timeout_s": 1.5}), closed(1, 1, osl=91, warmup=0)
    )
    assert driven.done.failed == {}


def test_an_answer_that_is_finished_ends_though_heartbeats_go_on(odd, drive):
    async def finished(n, body, writer):
        writer.write(HEAD + chunk(token()) + chunk(token(finish="length") + USAGE))
        for _ in range(400):
            await asyncio.sleep(0.05)
            writer.write(chunk(b": ping\n\n"))
            await writer.drain()

    driven = drive(plan_for(odd(finished).url), closed(1, 1, osl=2, warmup=0))
    assert driven.done.failed == {}
    assert driven.done.sent == 1


def test_failures_at_once_are_not_hammered_and_end_the_rung(odd, drive):
    async def refuse(n, body, writer):
        writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 6\r\nconnection: close\r\n\r\nbroken")

    server = odd(refuse)
    driven = drive(plan_for(server.url), closed(4, 10_000))
    assert driven.done.failed == {"http_status": driven.done.sent}
    assert 20 <= driven.done.sent < 60
    assert "stopped early" in driven.done.note
    assert "broken" in driven.done.note
    assert driven.rows("DISTINCT http_status, error_kind, error_message, ok") == [
        (500, "http_status", "broken", False)
    ]


def test_a_slot_that_failed_at_once_rests_longer_each_time(odd, drive):
    async def refuse(n, body, writer):
        writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    driven = drive(plan_for(odd(refuse).url), closed(1, 5, warmup=0))
    due = [t for (t,) in driven.rows("due_ns", rest="ORDER BY due_ns")]
    rests = [(later - earlier) / 1e6 for earlier, later in itertools.pairwise(due)]
    assert all(rest >= least for rest, least in zip(rests, [50, 100, 200, 400], strict=True))


def test_a_full_server_is_not_a_dead_one(odd, drive):
    """It takes one stream and refuses all others with 429: the rung goes on, refusals are rows."""
    busy = []

    async def one_at_a_time(n, body, writer):
        if busy:
            writer.write(b"HTTP/1.1 429 Slow\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy")
            return
        busy.append(n)
        writer.write(HEAD + chunk(token()))
        await asyncio.sleep(2.5)
        writer.write(chunk(token(finish="length") + USAGE + b"data: [DONE]\n\n") + b"0\r\n\r\n")
        busy.clear()

    driven = drive(plan_for(odd(one_at_a_time).url), closed(8, 30, osl=2, warmup=0))
    assert driven.done.sent == 30
    assert set(driven.done.failed) == {"rate_limited"}
    assert "stopped early" not in driven.done.note


def test_no_server_is_rows_and_an_early_end(drive):
    driven = drive(plan_for("http://127.0.0.1:9"), closed(2, 1000))
    assert driven.done.failed == {"connect": driven.done.sent}
    assert driven.rows("DISTINCT error_message, sent_ns") == [
        ("nothing listens at 127.0.0.1:9 (connection refused)", None)
    ]
    assert driven.done.warmup_end_ns is not None or "stopped early" in driven.done.note


@pytest.mark.parametrize(
    ("workers", "asked", "warm"), [(1, 20, 7), (2, 20, 7), (3, 20, 7), (6, 3, 2), (2, 5, 0)]
)
def test_an_open_loop_measures_as_many_as_were_asked_for(scripted, drive, workers, asked, warm):
    """The schedule is dealt out in turn: whoever has the first request after the warm-up, it is measured."""
    server = scripted(Script(replies=(FAST,)), own_process=True)
    plan = plan_for(server.url, workers=workers, arrivals=Arrivals("constant"))
    driven = drive(plan, open_loop(100.0, asked, warmup=warm))
    assert driven.done.sent == asked + warm
    assert driven.rows("count(*)", rest=f"WHERE due_ns >= {driven.done.warmup_end_ns}") == [(asked,)]


def test_no_slot_waits_for_messages_that_do_not_end(odd, drive):
    """[DONE] is there, the end of the message never: after a few answers nobody waits 50 ms for it any more."""

    async def left_open(n, body, writer):
        writer.write(HEAD + chunk(token() + token(finish="length") + USAGE + b"data: [DONE]\n\n"))
        await asyncio.sleep(30)

    driven = drive(plan_for(odd(left_open).url), closed(1, 40, osl=2, warmup=0))
    assert driven.done.failed == {}
    waits = [
        w for (w,) in driven.rows("sent_ns - lag(end_ns) OVER (ORDER BY sent_ns)", rest="ORDER BY sent_ns")
    ][6:]
    assert sorted(waits)[len(waits) // 2] < 40e6
