"""The run folder keeps what was closed, shows nothing else, and types do not depend on the data."""

import duckdb
import numpy as np
import pytest

from pinchpoint.errors import RecordError
from pinchpoint.plan.model import Endpoint, Plan, Profile, Rung
from pinchpoint.record.files import NULL
from pinchpoint.record.folder import Mark, RunFolder, stem
from pinchpoint.record.tables import ARRIVALS, REQUESTS
from pinchpoint.vocab import Stage

RUNG = Rung(0, Profile("mixed", 100, 10), 4, requests=8)


def close(folder, rung=RUNG):
    folder.close_rung([Mark.of(rung, Stage.STEADY, 5, 9), Mark.of(rung, Stage.RUNG, 1, 10)])


def arrivals(n, tokens=1):
    return {
        "request_id": np.arange(n),
        "t_ns": np.arange(n) * 7,
        "tokens": np.full(n, tokens),
        "bytes": np.full(n, 200),
    }


def test_only_closed_rungs_are_seen(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Plan(), {})
    folder.write_table("arrivals", stem(0, 0), arrivals(5))
    folder.write_table("arrivals", stem(1, 0), arrivals(7))
    close(folder)
    with RunFolder.open(tmp_path / "run") as again:
        assert again.columns("select count(*) as n from arrivals")["n"].tolist() == [5]
        assert again.closed() == {0}
        assert again.marks()[0] == Mark(0, "mixed", 100, 10, 4, None, 0, "ladder", "steady", 5, 9, "")
        with pytest.raises(RecordError, match="another pinchpoint is writing"):
            again.reopen()
        folder.release()  # as the end of its process would
        assert again.reopen() == ["arrivals/r0001-w0.parquet"]


def test_types_are_declared_even_when_all_values_are_missing(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Plan(), {})
    folder.write_table("requests", stem(0, 0), {"request_id": [1], "error_message": [None], "ok": [True]})
    folder.write_table(
        "requests", stem(0, 1), {"request_id": [2], "error_message": ["x"], "cached_tokens": [3]}
    )
    folder.write_table("arrivals", stem(0, 0), arrivals(2, tokens=NULL))
    for table, types in (("requests", REQUESTS), ("arrivals", ARRIVALS)):
        for path in (tmp_path / "run" / table).glob("*.parquet"):
            found = duckdb.sql(f"describe select * from '{path}'").fetchall()
            assert {row[0]: row[1] for row in found} == types
    close(folder)
    got = folder.columns("select tokens from arrivals")["tokens"]
    assert np.ma.getmaskarray(got).tolist() == [True, True]


def test_an_unsigned_counter_keeps_all_its_bits(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Plan(), {})
    folder.write_table("samples", "snmp", {"t_ns": [1], "raw": np.array([2**64 - 1], dtype=np.uint64)})
    assert folder.columns("select raw from samples")["raw"].tolist() == [2**64 - 1]


def test_a_second_run_does_not_overwrite_the_first(tmp_path):
    RunFolder.create(tmp_path / "run", Plan(), {})
    with pytest.raises(RecordError, match="--resume"):
        RunFolder.create(tmp_path / "run", Plan(), {})


def test_what_is_no_run_folder_says_so(tmp_path):
    with pytest.raises(RecordError, match="no run folder"):
        RunFolder.open(tmp_path)
    folder = RunFolder.create(tmp_path / "run", Plan(), {})
    folder.update_facts(schema=99)
    with pytest.raises(RecordError, match="schema 99"):
        RunFolder.open(tmp_path / "run")


def test_literal_header_values_are_not_written(tmp_path):
    plan = Plan(
        endpoint=Endpoint(
            headers={"Authorization": "Bearer sk-geheim", "X-A": "env:A"},
            extra_body={"api_key": "sk-geheim", "top_p": 1},
        )
    )
    RunFolder.create(tmp_path / "run", plan, {})
    text = (tmp_path / "run" / "plan.json").read_text()
    assert "geheim" not in text
    assert "env:A" in text
    assert RunFolder.open(tmp_path / "run").plan.endpoint.extra_body["top_p"] == 1


def test_a_refused_write_leaves_no_trace_and_names_the_way_out(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Plan(), {})
    (tmp_path / "run" / "arrivals" / f"{stem(0, 0)}.parquet").mkdir()
    with pytest.raises(RecordError, match="--resume"):
        folder.write_table("arrivals", stem(0, 0), arrivals(1))
    assert not list((tmp_path / "run" / "arrivals").glob(".*"))


def test_a_rung_that_was_cut_short_is_forgotten_when_the_run_goes_on(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Plan(), {})
    folder.write_table("arrivals", stem(0, 0), arrivals(5))
    close(folder)
    folder.write_table("arrivals", stem(1, 0), arrivals(7))
    folder.close_rung([Mark.of(Rung(1, RUNG.profile, 4), Stage.RUNG, 1, 10, "cut short: Ctrl-C")])
    assert folder.columns("select count(*) as n from arrivals")["n"].tolist() == [12]
    assert folder.cut_short() == {1}
    assert folder.reopen() == ["arrivals/r0001-w0.parquet"]
    assert RunFolder.open(tmp_path / "run").closed() == {0}


def test_a_time_scale_is_applied_to_what_readers_get(tmp_path):
    """Everything in the time of what was measured, ten times the host's; the files stay as they were written."""
    folder = RunFolder.create(tmp_path / "run", Plan(), {"time_scale": 10})
    folder.write_table("arrivals", stem(0, 0), {**arrivals(3), "t_ns": [1001, 1002, NULL]})
    samples = {
        "t_ns": [1003] * 4,
        "source": ["client", "client", "host", "vllm"],
        "metric": ["loop_lag", "cpu", "cpu_pressure_some", "ttft"],
        "unit": ["ns", "share", "us", "ns"],
        "value": [7.0, 0.5, None, 7.0],
        "raw": [None, None, 3, None],
    }
    folder.write_table("samples", stem(0, 0), samples)
    folder.close_rung([Mark.of(RUNG, Stage.STEADY, 1000, 1001), Mark.of(RUNG, Stage.RUNG, 1000, 1004)])
    with RunFolder.open(tmp_path / "run") as again:
        assert [(m.start_ns, m.end_ns) for m in again.marks()] == [(1000, 1010), (1000, 1040)]
        assert again.columns("select t_ns from arrivals")["t_ns"].tolist() == [1010, 1020, None]
        got = again.columns("select t_ns, value, raw from samples")
        assert got["t_ns"].tolist() == [1030] * 4
        assert got["value"].tolist() == [
            70.0,
            0.5,
            None,
            7.0,
        ]  # the host's own clock, and no other, is stretched
        assert got["raw"].tolist() == [None, None, 30, None]
    (path,) = (tmp_path / "run" / "arrivals").glob("*.parquet")
    assert duckdb.sql(f"select max(t_ns) from '{path}'").fetchall() == [(1002,)]


def test_files_that_come_after_the_first_query_are_seen(tmp_path):
    """A sampler's last part is written when the last rung was read already."""
    folder = RunFolder.create(tmp_path / "run", Plan(), {})

    def ports(part, octets):
        folder.write_table("ports", f"watch-x-000{part}", {
            "t_ns": [1, 2], "t_req_ns": [1, 2], "t_resp_ns": [1, 2], "source": ["s"] * 2, "entity": ["e"] * 2,
            "in_octets": octets,
        })  # fmt: skip

    def seen():
        return folder.columns("SELECT count(*) AS n, sum(in_octets) AS octets FROM ports")

    assert seen()["n"][0] == 0
    ports(0, [1, 2])
    assert (seen()["n"][0], seen()["octets"][0]) == (2, 3)
    ports(1, [10, 20])
    assert (seen()["n"][0], seen()["octets"][0]) == (4, 33)
    folder.close()


@pytest.mark.parametrize("scale", [0, -1, 1e300, "x", True, None])
def test_a_time_scale_that_is_none_is_refused(tmp_path, scale):
    folder = RunFolder.create(tmp_path / "run", Plan(), {"time_scale": scale})
    with pytest.raises(RecordError, match=r"time_scale is .*; it must be a number above 0"):
        folder.marks()
