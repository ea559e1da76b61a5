"""The plan: frozen values that travel whole from the command line to the workers and into ``plan.json``."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

__all__ = [
    "DEFAULT_LADDER",
    "DEFAULT_PROFILES",
    "Api",
    "Arrivals",
    "Endpoint",
    "Kind",
    "Limits",
    "Load",
    "Plan",
    "Profile",
    "Rung",
    "Slo",
    "phase_of",
]

Api = Literal["auto", "chat", "completions"]
Kind = Literal["prefill", "decode", "mixed"]
Pattern = Literal["closed", "constant", "poisson", "gamma", "burst", "trace"]


def phase_of(isl: int, osl: int) -> Kind:
    """Which phase lengths isolate: ``prefill`` if one token comes out, ``decode`` if at least eight come out for each
    that goes in, else ``mixed``."""
    if osl == 1:
        return "prefill"
    return "decode" if osl >= 8 * isl else "mixed"


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A workload shape: prompts of ``isl`` tokens, answers of ``osl`` tokens."""

    name: str
    isl: int
    osl: int

    @property
    def kind(self) -> Kind:
        """Which phase the shape isolates; one that is called ``decode`` or ``mixed`` is that, whatever its lengths."""
        by_length = phase_of(self.isl, self.osl)
        if by_length == "prefill":
            return by_length
        return "decode" if self.name == "decode" else "mixed" if self.name == "mixed" else by_length

    @property
    def shape(self) -> str:
        """``4096/512``."""
        return f"{self.isl}/{self.osl}"


DEFAULT_PROFILES: tuple[Profile, ...] = (
    Profile("prefill", 8192, 1),
    Profile("prefill", 16384, 1),
    Profile("decode", 128, 2048),
    Profile("mixed", 4096, 512),
)
DEFAULT_LADDER = (8, 16, 32, 64, 128)


class Endpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the load goes and how it is let in. Secrets are named here, never held."""

    urls: tuple[str, ...] = ()
    model: str | None = None  # None: the only model the endpoint lists
    api: Api = "auto"
    api_key: str | None = None  # "env:NAME" or "file:PATH"; OPENAI_API_KEY when None
    headers: dict[str, str] = {}  # values may be "env:NAME" or "file:PATH" too
    extra_body: dict[str, Any] = {}
    verify: bool = True
    ca_file: str | None = None
    client_cert: str | None = None
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 600.0  # no byte for this long, or no token for ten times as long, ends a request


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Closed loop, or an open loop whose requests are due whatever the server does."""

    pattern: Pattern = "closed"
    rates: tuple[float, ...] = ()  # requests/s, one rung each (open loop)
    burstiness: float = 1.0  # gamma shape: 1 = Poisson, < 1 burstier, > 1 more even
    burst_size: int = 1  # pattern "burst": this many at once, rate / burst_size times a second
    ramp_s: float = 0.0  # closed: slots start spread over this; open: the rate rises linearly
    trace: str | None = None  # Mooncake JSONL or Azure CSV
    trace_speed: float = 1.0
    max_in_flight: int | None = None  # open loop: hold back above this; the wait counts from due


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of it, per rung."""

    request_count: int | None = None  # after warm-up; None = requests_per_slot × concurrency
    requests_per_slot: int = 4
    duration_s: float | None = None  # after warm-up; wins over request_count
    warmup_request_count: int | None = None  # None = one per slot
    stagger: bool = True
    num_runs: int = 1
    drain_limit_s: float = 120.0
    osl_spread: float = 0.0  # answers vary by this share around OSL, evenly (crosscheck)


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the run may cost at most."""

    budget_s: float | None = None
    max_requests: int | None = None
    max_duration_s: float | None = None
    max_error_share: float = 0.05
    auto_max_concurrency: int = 1024


class Slo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits a good request keeps, in ms; None = not asked."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run, whole. Read by :func:`pinchpoint.plan.read.read_plan`; written as ``plan.json``."""

    endpoint: Endpoint = Endpoint()
    profiles: tuple[Profile, ...] = DEFAULT_PROFILES
    concurrency: tuple[int, ...] = DEFAULT_LADDER  # empty = auto
    auto: bool = False
    arrivals: Arrivals = Arrivals()
    load: Load = Load()
    limits: Limits = Limits()
    goodput: Slo = Slo()
    watch: tuple[str, ...] = ()
    watch_hz: float = 1.0
    gpus: int | None = None
    ranks: int | None = None  # data-parallel ranks behind the endpoint, where known
    workers: int | None = None  # None = one per usable core
    fleet: str = "local"
    seed: int | None = None  # None = drawn once, and recorded
    skip_check: bool = False
    self_check: bool = True  # measure the load generator's own ceiling before the run
    output_dir: str | None = None
    lang: Literal["en", "ko"] = "en"
    metadata: dict[str, str] = {}


class Rung(msgspec.Struct, frozen=True):
    """One rung to drive: a profile at one concurrency (closed loop) or rate (open loop)."""

    index: int  # ordinal of execution, names the rung's files
    profile: Profile
    concurrency: int | None  # None: open loop without a cap
    rate: float | None = None  # requests/s; None: closed loop
    requests: int | None = None  # measured requests; None: by duration
    duration_s: float | None = None
    warmup: int = 0  # requests of the warm-up wave, over all slots
    repeat: int = 0  # 0 first time, 1 … measured again (--num-runs, or to confirm a fall)
    why: str = "ladder"  # ladder | unloaded | climb | knee | onset | confirm | trace

    @property
    def warmup_sent(self) -> int:
        """Requests sent until the warm-up is over: in a closed loop slots whose first answer ends early go on meanwhile."""
        if self.rate is not None or not self.warmup:
            return self.warmup
        return self.warmup + (self.concurrency or 1) - 1

    @property
    def sent(self) -> int:
        """All requests, those of the warm-up among them; of a closed loop that goes by time, the warm-up's alone."""
        measured = self.requests
        if measured is None and self.rate is not None and self.duration_s is not None:
            measured = math.ceil(self.rate * self.duration_s)
        return (measured or 0) + self.warmup_sent

    @property
    def label(self) -> str:
        """``mixed 4096/512 c32`` or ``mixed 4096/512 2.5/s``."""
        level = f"c{self.concurrency}" if self.rate is None else f"{self.rate:g}/s"
        return f"{self.profile.name} {self.profile.shape} {level}" + (
            f" #{self.repeat + 1}" if self.repeat else ""
        )
