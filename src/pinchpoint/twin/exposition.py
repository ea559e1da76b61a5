"""``/metrics`` in vLLM's current names, so that whatever reads vLLM reads the twin.

Times are wall seconds, as everything a client sees; counters are of tokens and requests as served.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

__all__ = ["Exposition", "Histogram"]

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
         160.0, 640.0, 2560.0)  # fmt: skip
_GAP = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
            960.0, 1920.0, 7680.0)  # fmt: skip
_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Histogram:
    """Prometheus' cumulative buckets."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """``times`` observations of ``value``."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def lines(self, name: str, labels: str) -> Iterable[str]:
        """Buckets, sum and count."""
        below = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            shown = "+Inf" if bound == float("inf") else repr(float(bound))
            yield f'{name}_bucket{{{labels},le="{shown}"}} {below}.0'
        yield f"{name}_sum{{{labels}}} {self.total}"
        yield f"{name}_count{{{labels}}} {below}.0"


class Exposition:
    """Everything that is counted over the life of the endpoint."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.ttft, self.gap = Histogram(_TTFT), Histogram(_GAP)
        self.e2e, self.queue = Histogram(_REQUEST), Histogram(_REQUEST)
        self.step_tokens = Histogram(_STEP)

    def text(self, ranks: Sequence[tuple[int, int, float]], preemptions: int) -> bytes:
        """The exposition; ``ranks`` is (running, waiting, share of KV) of each."""
        out: list[str] = []
        gauges = (("num_requests_running", 0), ("num_requests_waiting", 1), ("kv_cache_usage_perc", 2))
        for name, index in gauges:
            out.append(f"# TYPE vllm:{name} gauge")
            out += [f"vllm:{name}{{{self._labels(i)}}} {float(rank[index])}" for i, rank in enumerate(ranks)]
        labels = self._labels(0)
        counters = (
            ("num_preemptions_total", preemptions),
            ("prompt_tokens_total", self.prompt_tokens),
            ("generation_tokens_total", self.generation_tokens),
            ("prefix_cache_queries_total", self.prompt_tokens if self.cached_tokens else 0),
            ("prefix_cache_hits_total", self.cached_tokens),
        )
        for name, value in counters:
            out += [f"# TYPE vllm:{name} counter", f"vllm:{name}{{{labels}}} {float(value)}"]
        out.append("# TYPE vllm:request_success_total counter")
        for reason, count in self.finished.items():
            out.append(f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {float(count)}')
        histograms = (
            ("iteration_tokens_total", self.step_tokens),
            ("time_to_first_token_seconds", self.ttft),
            ("inter_token_latency_seconds", self.gap),
            ("e2e_request_latency_seconds", self.e2e),
            ("request_queue_time_seconds", self.queue),
        )
        for name, histogram in histograms:
            out.append(f"# TYPE vllm:{name} histogram")
            out += histogram.lines(f"vllm:{name}", labels)
        return ("\n".join(out) + "\n").encode()

    def _labels(self, rank: int) -> str:
        return f'engine="{rank}",model_name="{self.model}"'
