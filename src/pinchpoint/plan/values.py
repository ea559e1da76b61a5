"""How one value of a plan is read, from a command line text or a plan file's own type."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Profile
from pinchpoint.units import SECOND, duration_ns
from pinchpoint.wire.http1 import SET_BY_US

__all__ = ["Reader"]

Reader = Callable[[Any], Any]

MAX_CONCURRENCY = 100_000
MAX_TOKENS = 10_000_000
# More than anyone means, and little enough to plan and to hold: what lies beyond is a slip of the keyboard.
MAX_REQUESTS = 10_000_000
MIN_RATE, MAX_RATE = 1e-5, 1_000_000.0
MAX_SECONDS = 31 * 86_400.0
MAX_RUNS = 100
MAX_WORKERS = 1024
MAX_SEED = 2**63 - 1


def text(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str | int | float | Path) or isinstance(value, bool) or not str(value).strip():
        raise PlanError(
            "nothing was given; give a value, or leave it out" if value == "" else f"{value!r} is no text"
        )
    return str(value).strip()


def words(value: Any) -> tuple[str, ...]:
    """``a,b`` or a list of texts; commas inside ``(…)``, ``{…}``, ``"…"`` do not part (PromQL has them)."""
    items = value if isinstance(value, list | tuple) else [value]
    found: list[str] = []
    for item in items:
        found += [part.strip() for part in re.split(r",(?![^({\"]*[)}\"])", text(item)) if part.strip()]
    if not found:
        raise PlanError("nothing was named")
    return tuple(found)


def choice(*allowed: str) -> Reader:
    """One of the allowed texts."""

    def read(value: Any) -> str:
        if value not in allowed:
            raise PlanError(f"{value!r} is none of {', '.join(allowed)}")
        return str(value)

    return read


LANGUAGES = ("en", "ko")


def language(value: Any) -> str:
    """The language of the report."""
    if value not in LANGUAGES:
        raise PlanError(f"the report speaks {' and '.join(LANGUAGES)}, not {value!r}")
    return str(value)


def number(value: Any) -> float:
    """A finite number, also as text."""
    if isinstance(value, bool):
        raise PlanError(f"{value!r} is no number")
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise PlanError(f"{value!r} is no number") from None
    if found != found or found in (float("inf"), float("-inf")):
        raise PlanError(f"{value!r} is no finite number")
    return found


def positive(value: Any) -> float:
    """A number above zero."""
    found = number(value)
    if found <= 0:
        raise PlanError(f"{value!r} must be above zero")
    return found


def share(value: Any) -> float:
    """A share between 0 and 1; ``5%`` is read too."""
    percent = isinstance(value, str) and value.strip().endswith("%")
    found = number(str(value).strip().rstrip("%")) / (100 if percent else 1)
    if not 0 <= found <= 1:
        raise PlanError(f"{value!r} must be a share between 0 and 1")
    return found


def count_or_zero(value: Any) -> int:
    """A whole number, zero or more."""
    return _whole(value, 0, "zero")


def count(value: Any) -> int:
    """A whole number, one or more."""
    return _whole(value, 1, "one")


def _whole(value: Any, least: int, said: str) -> int:
    found = number(value)
    if found != int(found) or found < least:
        raise PlanError(f"{value!r} must be a whole number, {said} or more")
    return int(found)


def at_most(limit: float, read: Reader) -> Reader:
    """As ``read``, refusing what lies beyond ``limit``."""

    def bounded(value: Any) -> Any:
        found = read(value)
        for each in found if isinstance(found, tuple) else (found,):
            if each > limit:
                raise PlanError(f"{value!r} is beyond {limit:,.0f}, the most that can be asked for")
        return found

    return bounded


def _each(value: Any) -> list[Any]:
    """``8,16`` or a list of such, apart; refuses an empty place between commas."""
    found: list[Any] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        parts = [part.strip() for part in item.split(",")] if isinstance(item, str) else [item]
        if "" in parts:
            raise PlanError(f"{item!r}: nothing stands in a place where a number should")
        found += parts
    return found


def rates(value: Any) -> tuple[float, ...]:
    """Requests per second, lowest first; none twice."""
    found = tuple(sorted(positive_numbers(value)))
    _once(found)
    if not MIN_RATE <= found[0] <= found[-1] <= MAX_RATE:
        raise PlanError(f"{value!r}: a rate is between {MIN_RATE:g} and {MAX_RATE:,.0f} requests/s")
    return found


def burstiness(value: Any) -> float:
    """A gamma shape that can be drawn from."""
    found = positive(value)
    if not 0.001 <= found <= 1e6:
        raise PlanError(f"{value!r} must be between 0.001 (extremely bursty) and 1000000 (constant)")
    return found


def positive_numbers(value: Any) -> tuple[float, ...]:
    """``1,2.5`` or a list of numbers above zero."""
    return tuple(positive(part) for part in _each(value))


def place(value: Any) -> str:
    """A path; ``~`` is the home folder, as in a shell.

    Raises:
        PlanError: no text, or the home folder of nobody.
    """
    try:
        return str(Path(text(value)).expanduser())
    except RuntimeError as fault:
        raise PlanError(f"{value!r}: {fault}; write the whole path") from None


def counts(flag: str, value: Any) -> list[int]:
    """Whole numbers, as 2,4,8, for what is not climbed: users or nodes of a twin; sorted, none twice.

    Raises:
        PlanError: something else; says so of ``flag``.
    """
    try:
        found = sorted(count(part) for part in _each(str(value)))
    except PlanError as fault:
        raise PlanError(f"{flag}: {fault}; write whole numbers, as 2,4,8") from None
    if not found or len(set(found)) < len(found):
        raise PlanError(f"{flag} {value!r}: write whole numbers, each once, as 2,4,8")
    return found


def concurrency(value: Any) -> Any:
    """``auto`` or whole numbers, sorted; none twice."""
    if value == "auto" or value == ["auto"] or value == ("auto",):
        return "auto"
    try:
        levels = sorted(count(part) for part in _each(value))
    except PlanError as fault:
        raise PlanError(f"{fault}; write whole numbers, as 8,16,32, or auto alone") from None
    if not levels:
        raise PlanError("name at least one concurrency, or auto")
    if levels[-1] > MAX_CONCURRENCY:
        raise PlanError(f"{levels[-1]} is beyond {MAX_CONCURRENCY}, the most one run drives")
    _once(levels)
    return tuple(levels)


def _once(levels: Sequence[float]) -> None:
    """Raise PlanError where a rung is named twice (``levels`` ascending)."""
    twice = next((low for low, high in itertools.pairwise(levels) if low == high), None)
    if twice is not None:
        raise PlanError(f"{twice:g} is named twice; name each once (--num-runs 2 drives a ladder twice)")


def seconds(value: Any) -> float:
    """A duration, in seconds."""
    found = duration_ns(value) / SECOND
    if found > MAX_SECONDS:
        raise PlanError(f"{value!r} is longer than {MAX_SECONDS / 86_400:.0f} days")
    return found


def flag(value: Any) -> bool:
    """Yes or no."""
    if isinstance(value, bool):
        return value
    match str(value).strip().lower():
        case "true" | "yes" | "on" | "1":
            return True
        case "false" | "no" | "off" | "0":
            return False
    raise PlanError(f"{value!r} is neither true nor false")


def negated(value: Any) -> bool:
    """A flag whose field says the opposite (``--insecure`` → verify = False)."""
    return not flag(value)


def secret_reference(value: Any) -> str:
    """``env:NAME`` or ``file:PATH``, never the secret itself. The value is not repeated in the message."""
    if not isinstance(value, str) or not re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+", value):
        raise PlanError(
            "a key is never given itself, for command lines and plan files are read by others; "
            "write env:NAME or file:PATH, or set OPENAI_API_KEY"
        )
    return value


def headers(value: Any) -> dict[str, str]:
    """``Name: value`` (or ``Name=value``) texts, or a table."""
    if isinstance(value, Mapping):
        pairs = [(str(name), str(inner)) for name, inner in value.items()]
    else:
        pairs = []
        for item in value if isinstance(value, list | tuple) else [value]:
            name, sign, inner = re.match(r"([^:=]*)([:=]?)(.*)", str(item), re.DOTALL).groups()  # type: ignore[union-attr]
            if not sign:
                raise PlanError("a header has no ':'; write 'Name: value', or 'Name: env:VARIABLE'")
            pairs.append((name, inner))
    for name, inner in pairs:
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name.strip()):
            raise PlanError("a header's name is made of letters, digits and -")
        if name.strip().lower() in SET_BY_US:
            raise PlanError(f"header {name.strip()!r} is set by pinchpoint itself")
        if any(ord(sign) < 32 or ord(sign) == 127 for sign in inner):
            raise PlanError(f"the value of header {name.strip()} holds a control character")
    return {name.strip(): inner.strip() for name, inner in pairs}


def json_object(value: Any) -> dict[str, Any]:
    """A JSON object, or a table."""
    if isinstance(value, Mapping):
        return dict(value)
    try:
        found = msgspec.json.decode(str(value).encode())
    except (msgspec.DecodeError, RecursionError) as failure:
        raise PlanError(f"is no JSON: {failure}") from None
    if not isinstance(found, dict):
        raise PlanError("must be a JSON object, as in '{\"top_p\": 1}'")
    return found


def readable_file(value: Any) -> str:
    """The path of a file that can be opened."""
    path = Path(text(value)).expanduser()
    try:
        with path.open("rb"):
            pass
    except OSError as failure:
        raise PlanError(f"{path}: {failure.strerror}") from None
    return str(path)


def goodput(value: Any) -> dict[str, float]:
    """``ttft:500 tpot:30`` (ms), or a table."""
    if isinstance(value, Mapping):
        pairs = [(str(name), inner) for name, inner in value.items()]
    else:
        items = value if isinstance(value, list | tuple) else [value]
        pairs = [
            (n, v)
            for item in items
            for n, _, v in (p.partition(":") for p in re.split(r"[,\s]+", str(item)) if p)
        ]
    found = {}
    for name, inner in pairs:
        key = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2e_ms", "e2el": "e2e_ms"}.get(
            name.removesuffix("_ms")
        )
        if key is None:
            raise PlanError(f"no limit {name!r}; there are ttft, tpot and e2e, in ms, as in ttft:500 tpot:30")
        found[key] = positive(inner)
    return found


def labels(value: Any) -> dict[str, str]:
    """``name=value`` texts, or a table."""
    if isinstance(value, Mapping):
        return {str(name): str(inner) for name, inner in value.items()}
    items = value if isinstance(value, list | tuple) else [value]
    pairs = [str(item).partition("=") for item in items]
    if any(not sign for _, sign, _ in pairs):
        raise PlanError("a label is name=value")
    return {name: inner for name, _, inner in pairs}


def fleet(value: Any) -> str:
    """``local`` or ``ray://host:port`` (``ray`` alone: the cluster this host belongs to)."""
    if value in ("local", "ray") or str(value).startswith("ray://"):
        return str(value)
    raise PlanError(f"{value!r} is no fleet; there are local and ray://HOST:PORT")


def profiles(value: Any) -> tuple[Profile, ...]:
    """``NAME=ISL/OSL`` texts (``ISL:OSL`` is read too), or a table of them; each name once."""
    if isinstance(value, Mapping):
        items = [f"{name}={shape}" for name, shape in value.items()]
    else:
        items = [str(item) for item in (value if isinstance(value, list | tuple) else [value])]
    found: dict[str, Profile] = {}
    for item in items:
        name, _, shape = (part.strip() for part in item.partition("="))
        match = re.fullmatch(r"(\d+)\s*[/:]\s*(\d+)", shape)
        if not match or not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,63}", name):
            raise PlanError(f"{item} is no profile; write NAME=ISL/OSL, as in chatty=900/250")
        isl, osl = int(match[1]), int(match[2])
        if not (1 <= isl <= MAX_TOKENS and 1 <= osl <= MAX_TOKENS):
            raise PlanError(f"{item}: lengths are between 1 and {MAX_TOKENS} tokens")
        if name in found:
            raise PlanError(
                f"{name} is named twice, {found[name].shape} and {isl}/{osl}; give each its own name"
            )
        found[name] = Profile(name, isl, osl)
    return tuple(found.values())
