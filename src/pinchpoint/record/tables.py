"""The tables of a run folder: names and types, declared once, never inferred from the data.

Times are integer nanoseconds of the host's monotonic clock; ``facts.json`` holds its offset to the wall clock.
"""

from __future__ import annotations

__all__ = ["ARRIVALS", "MARKS", "PORTS", "REQUESTS", "SAMPLES", "SCHEMA_VERSION", "Columns"]

Columns = dict[str, str]  # column name -> DuckDB type

# History of the format. 1: first public one.
SCHEMA_VERSION = 1

REQUESTS: Columns = {
    "request_id": "BIGINT",  # unique in the run: rung << 40 | worker << 28 | ordinal
    "rung": "INTEGER",  # Rung.index
    "profile": "VARCHAR",
    "concurrency": "INTEGER",  # NULL: open loop without a cap
    "worker": "INTEGER",
    "endpoint": "INTEGER",  # index into plan.endpoint.urls
    "due_ns": "BIGINT",
    "sent_ns": "BIGINT",  # NULL: never sent (cancelled while held back, or no connection)
    "first_byte_ns": "BIGINT",
    "first_token_ns": "BIGINT",
    "first_content_ns": "BIGINT",
    "last_token_ns": "BIGINT",
    "end_ns": "BIGINT",
    "asked_isl": "INTEGER",
    "asked_osl": "INTEGER",
    "prompt_tokens": "INTEGER",
    "cached_tokens": "INTEGER",
    "output_tokens": "INTEGER",
    "output_tokens_source": "VARCHAR",  # vocab.TokenSource
    "token_events": "INTEGER",
    "finish_reason": "VARCHAR",
    "ok": "BOOLEAN",
    "error_kind": "VARCHAR",  # vocab.ErrorKind
    "error_message": "VARCHAR",
    "http_status": "INTEGER",
    "saw_done": "BOOLEAN",
    "warnings": "VARCHAR",  # comma-joined vocab.Warn, empty when none
}

ARRIVALS: Columns = {  # one row per token-bearing event
    "request_id": "BIGINT",
    "t_ns": "BIGINT",
    "tokens": "INTEGER",  # NULL where unknown
    "bytes": "INTEGER",
}

MARKS: Columns = {  # rung and stage limits; a row with stage "rung" closes the rung
    "rung": "INTEGER",
    "profile": "VARCHAR",
    "isl": "INTEGER",
    "osl": "INTEGER",
    "concurrency": "INTEGER",
    "rate": "DOUBLE",
    "repeat": "INTEGER",
    "why": "VARCHAR",
    "stage": "VARCHAR",  # vocab.Stage
    "start_ns": "BIGINT",
    "end_ns": "BIGINT",
    "note": "VARCHAR",  # why a stage is missing or cut short; empty when nothing is to be said
}

SAMPLES: Columns = {
    "t_ns": "BIGINT",  # midpoint of request and response
    "t_req_ns": "BIGINT",
    "t_resp_ns": "BIGINT",
    "source_ns": "BIGINT",  # the device's own time stamp, where it gives one
    "source": "VARCHAR",
    "entity": "VARCHAR",
    "metric": "VARCHAR",
    "unit": "VARCHAR",
    "value": "DOUBLE",  # gauges
    "raw": "UBIGINT",  # counters
}

PORTS: Columns = {  # high-rate port counters, one wide row per entity and read
    "t_ns": "BIGINT",  # midpoint of request and response
    "t_req_ns": "BIGINT",
    "t_resp_ns": "BIGINT",
    "source_ns": "BIGINT",  # the device's own time stamp, where it gives one
    "source": "VARCHAR",
    "entity": "VARCHAR",
    "in_octets": "UBIGINT",
    "out_octets": "UBIGINT",
    "in_packets": "UBIGINT",
    "out_packets": "UBIGINT",
    "in_discards": "UBIGINT",
    "out_discards": "UBIGINT",
}
