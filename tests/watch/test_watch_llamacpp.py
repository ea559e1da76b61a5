"""A real engine's own counters beside what its answers held."""

from __future__ import annotations

import http.client
import json
import threading
import time

import duckdb
import pytest

from pinchpoint.engines.llamacpp import start_llamacpp
from pinchpoint.errors import EndpointError
from pinchpoint.plan.model import Endpoint, Plan
from pinchpoint.watch.open import open_watch

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine():
    try:
        running = start_llamacpp(slots=4)
    except EndpointError as failure:
        pytest.skip(str(failure))
    yield running
    running.close()


def complete(engine, tokens, usage):
    connection = http.client.HTTPConnection(engine.url.removeprefix("http://"), timeout=60)
    body = {"model": engine.model, "prompt": [5] * 64, "max_tokens": tokens, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    usage.append(json.loads(connection.getresponse().read())["usage"])
    connection.close()


def test_token_totals_are_equal_and_in_flight_is_seen(engine, tmp_path):
    usage: list[dict[str, int]] = []
    plan = Plan(endpoint=Endpoint(urls=(engine.url,)), watch_hz=20.0)
    with open_watch(plan, tmp_path) as watch:
        assert watch.mark("before") == ()
        threads = [
            threading.Thread(target=complete, args=(engine, tokens, usage)) for tokens in (300, 300, 301, 307)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end = time.monotonic() + 20
        while watch.status()[0].reads < 3:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert watch.mark("after") == ()
        facts = watch.facts()["sources"][0]
    assert facts["engine"] == "llama.cpp"
    assert facts["max_running"] == 4
    grown = dict(
        duckdb.sql(
            f"SELECT metric, CAST(max(raw) - min(raw) AS BIGINT) FROM '{tmp_path}/samples/*.parquet' "
            "WHERE raw IS NOT NULL GROUP BY 1"
        ).fetchall()
    )
    assert grown["generation_tokens"] == sum(one["completion_tokens"] for one in usage) == 1208
    prompts = sum(one["prompt_tokens"] for one in usage)
    assert grown["prompt_tokens"] + grown.get("prompt_tokens_cached", 0) == prompts
    ((most,),) = duckdb.sql(
        f"SELECT max(value) FROM '{tmp_path}/samples/*.parquet' WHERE metric = 'running'"
    ).fetchall()
    assert 1 <= most <= 4
