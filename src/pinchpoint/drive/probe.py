"""What does the endpoint speak? A few small requests before the first rung; every refusal says what to do.

Order: the list of models; a completion with every field that forces lengths, from which whatever the server names in
a refusal is taken away; then the arithmetic of prompt lengths, against the server's own count.
"""

from __future__ import annotations

import secrets as randomness
from typing import Any, Literal

import msgspec

from pinchpoint.drive.client import Client, Heard
from pinchpoint.drive.lengths import measure_lengths
from pinchpoint.drive.reaching import tls_context
from pinchpoint.drive.refusals import without
from pinchpoint.drive.secrets import look_up, scrubbed
from pinchpoint.errors import EndpointError, PlanError
from pinchpoint.plan.model import Plan, Profile, Rung
from pinchpoint.plan.prompts import Prompts
from pinchpoint.units import to_ms
from pinchpoint.vocab import ErrorKind
from pinchpoint.wire.address import read_address
from pinchpoint.wire.dialect import ALL_FIELDS, Dialect, id_range, request_body

__all__ = ["Probed", "probe"]

_MOST_TRIES = 16
_LONGEST_ANSWER_S = 120.0  # to a probe of a few tokens; a first request may compile kernels
_PROBE_OSL = 3


class Probed(msgspec.Struct, frozen=True):
    """What was found: the model that will be asked, how to ask, and what the endpoint says of itself."""

    model: str | None
    dialect: Dialect
    facts: dict[str, Any]


def probe(plan: Plan, *, text: bool = False) -> Probed:
    """Find out how to drive ``plan.endpoint``, or why it cannot be driven. With ``plan.skip_check``: ask nothing.

    ``text``: in text prompts even where it takes token ids, as other load generators send them.

    Raises:
        EndpointError: unreachable, refusing, no OpenAI-compatible server, or not the model asked for.
        PlanError: no address, or a secret or certificate that cannot be read.
    """
    endpoint = plan.endpoint
    if not endpoint.urls:
        raise PlanError("no endpoint: give its address with --url http://HOST:PORT")
    addresses = [read_address(url) for url in endpoint.urls]
    secrets = look_up(endpoint)
    tls = tls_context(endpoint) if any(address.scheme == "https" for address in addresses) else None
    if plan.skip_check:
        return _unasked(plan, text)
    clients = [Client(address, secrets, tls, endpoint.connect_timeout_s) for address in addresses]
    first = _Probing(clients[0], plan, text)
    first.read_models()
    first.read_version()
    first.find_dialect()
    first.measure()
    for client in clients[1:]:
        other = _Probing(client, plan, text)
        other.read_models()
        other.model = first.model
        other.must_answer(first.dialect)
        first.facts["connect_ms"] += other.facts["connect_ms"]
    return Probed(first.model, first.dialect, scrubbed(secrets, first.facts))


def _unasked(plan: Plan, text: bool) -> Probed:
    endpoint = plan.endpoint
    if endpoint.model is None:
        raise PlanError("--skip-check asks the endpoint nothing, so the model must be named: --model")
    api: Literal["chat", "completions"] = "chat" if endpoint.api == "chat" else "completions"
    note = "the endpoint was not checked (--skip-check): lengths, accepted fields and usage are assumed"
    dialect = Dialect(api=api, token_ids=api == "completions" and not text, accepts=ALL_FIELDS, notes=(note,))
    return Probed(endpoint.model, dialect, {"urls": list(endpoint.urls), "checked": False})


class _Probing:
    """One endpoint under questions."""

    def __init__(self, client: Client, plan: Plan, text: bool) -> None:
        self.client, self.plan, self._text = client, plan, text
        self.model = plan.endpoint.model
        self.dialect = Dialect()
        self.facts: dict[str, Any] = {"urls": list(plan.endpoint.urls), "checked": True, "connect_ms": []}
        self._notes: list[str] = []
        self._vocabulary: int | None = None
        self._max_model_len: int | None = None
        self._engine: str | None = None
        self._asked = 0
        self._seed = randomness.randbits(60)  # prompts no cache has seen, also not from the probe before

    # -- what it says of itself -----------------------------------------------------------------------------------

    def read_models(self) -> None:
        """Choose the model, or see that the one named is there."""
        path = self.client.address.path("models")
        heard = self.client.get(path)
        self.facts["connect_ms"].append(round(to_ms(heard.connect_ns), 3))
        self.facts["server"] = heard.headers.get("server")
        self._let_in(heard, path)
        listed = heard.json()
        entries = listed.get("data") if isinstance(listed, dict) else None
        if not 200 <= heard.status < 300 or not isinstance(entries, list):
            if heard.html and heard.status < 400:
                raise self.client.fail(
                    f"{path} answers with an HTML page ({heard.said})",
                    "this is no OpenAI-compatible server; correct --url",
                )
            if self.model is None:
                raise self.client.fail(
                    f"{path} gives no list of models ({heard.said})", "correct --url, or name the --model"
                )
            return
        models = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
        names = [entry["id"] for entry in models]
        self.facts["models"] = names[:20]
        self._choose(names)
        self._read_entry(next(entry for entry in models if entry["id"] == self.model))

    def _choose(self, names: list[str]) -> None:
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        if not names:
            raise self.client.fail("it lists no model", "load one, or wait until it is loaded")
        if self.model is None:
            if len(names) > 1:
                raise self.client.fail(f"it serves several models: {shown}", "name one with --model")
            self.model = names[0]
            if self.client.secrets.scrub(self.model) != self.model:
                raise self.client.fail(
                    "its model's name repeats the key that was sent, and would stand in every file",
                    "look at what answers there",
                )
        elif self.model not in names:
            raise self.client.fail(
                f"it does not serve {self.model!r}, but: {shown}", "name one of these with --model"
            )

    def _read_entry(self, entry: dict[str, Any]) -> None:
        owner = str(entry.get("owned_by", "")).lower()
        server = str(self.facts.get("server") or "").lower()
        for mark, engine in _ENGINES:
            if mark in owner or mark in server:
                self._engine = engine
                break
        meta = entry.get("meta")
        meta = meta if isinstance(meta, dict) else {}
        vocabulary, longest = meta.get("n_vocab"), entry.get("max_model_len") or meta.get("n_ctx")
        if type(vocabulary) is int and vocabulary > 0:
            self._vocabulary = vocabulary
        if type(longest) is int and longest > 0:
            self._max_model_len = longest
        speed = meta.get("speed")
        if isinstance(meta.get("twin"), str) and isinstance(speed, int | float) and 0 < speed < 1e6:
            self.facts["twin"] = {"name": meta["twin"], "speed": speed}
            self._notes.append(f"this is no cluster but a twin ({meta['twin']}) played at speed {speed:g}")

    def read_version(self) -> None:
        """``/version`` and ``/health``, where there are such."""
        for target in ("version", "health"):
            try:
                heard = self.client.get(self.client.address.path(target))
            except EndpointError:
                continue  # neither is part of the API; what matters answered before
            said = heard.json()
            if target == "health":
                self.facts["health"] = heard.status
            elif heard.status == 200 and isinstance(said, dict) and isinstance(said.get("version"), str):
                self.facts["version"] = self.client.secrets.scrub(said["version"])

    # -- how to ask it --------------------------------------------------------------------------------------------

    def find_dialect(self) -> None:
        """Ask with everything; take away what is refused, until an answer comes."""
        api = self.plan.endpoint.api
        low, high = (
            id_range(self._vocabulary) if self._vocabulary is None or self._vocabulary > 40 else (1000, 9999)
        )
        dialect = Dialect(
            api="completions" if api == "auto" else api,
            token_ids=api != "chat" and not self._text,
            id_low=low,
            id_high=high,
        )
        refusal: Heard | None = None
        for _ in range(_MOST_TRIES):
            heard = self.ask(dialect, 32, _PROBE_OSL)
            if heard.answer.ok:
                self.dialect = dialect
                return
            self._let_in(heard, self.client.address.path(dialect.api))
            refusal = refusal or heard
            if self._not_there(heard) and dialect.api == "completions" and api == "auto":
                self._notes.append(
                    f"it has no completions API ({heard.said}): chat is used, and text prompts"
                )
                dialect = msgspec.structs.replace(dialect, api="chat", token_ids=False)
                refusal = None
                continue
            changed = without(dialect, heard)
            if changed is None:
                break
            dialect, note = changed
            self._notes.append(note)
        assert refusal is not None
        raise self._refused(refusal, dialect)

    def must_answer(self, dialect: Dialect) -> None:
        """See that this endpoint answers in a dialect found at another."""
        heard = self.ask(dialect, 32, _PROBE_OSL)
        self._let_in(heard, self.client.address.path(dialect.api))
        if not heard.answer.ok:
            raise self._refused(heard, dialect)

    def ask(self, dialect: Dialect, units: int, osl: int) -> Heard:
        """One request with a prompt of ``units`` ids or words."""
        self._asked += 1
        body = request_body(
            dialect, self.model or "", self.prompt(dialect, units), osl, self.plan.endpoint.extra_body
        )
        return self.client.post(
            self.client.address.path(dialect.api),
            body,
            min(_LONGEST_ANSWER_S, self.plan.endpoint.idle_timeout_s),
        )

    def prompt(self, dialect: Dialect, units: int) -> bytes:
        """A prompt of ``units`` ids or words, as a JSON value; with ids, the highest of the range is among them."""
        rung = Rung(0, Profile("probe", 1 << 10, 1), 1)
        prompt = Prompts(dialect, self._seed, rung).words(self._asked, units)
        if not dialect.token_ids:
            return prompt
        return b"[%d,%b" % (dialect.id_high, prompt.partition(b",")[2])

    # -- lengths --------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """How many tokens a prompt becomes, and whether answers are as long as asked."""
        found = measure_lengths(self.client, self.dialect, self.ask, self.prompt, self.model or "")
        self._notes += found.notes
        self.facts |= found.facts
        self.facts["probes"] = self._asked
        longest = self._max_model_len
        told = "some of its requests may be refused" if self.plan.arrivals.pattern == "trace" else "left out"
        for profile in self.plan.profiles if longest is not None else ():
            if longest is not None and profile.isl + profile.osl > longest:
                self._notes.append(
                    f"{profile.name} {profile.shape} needs {profile.isl + profile.osl} tokens, the model holds "
                    f"{longest}: {told}"
                )
        self.dialect = msgspec.structs.replace(
            found.dialect,
            path=self.client.address.path(self.dialect.api),
            engine=self._engine,
            engine_version=self.facts.get("version"),
            max_model_len=longest,
            notes=tuple(self.client.secrets.scrub(note) for note in dict.fromkeys(self._notes)),
        )

    # -- refusals -------------------------------------------------------------------------------------------------

    def _let_in(self, heard: Heard, path: str) -> None:
        if 300 <= heard.status < 400:
            raise self.client.fail(f"{path}: {heard.said}", "give the address it leads to as --url")
        if heard.status in (401, 403):
            known = any(name.lower() == "authorization" for name in self.client.secrets.headers)
            raise self.client.fail(
                f"{path} refuses us ({heard.said})",
                "the key sent is not the right one"
                if known
                else "give the key with --api-key env:NAME or file:PATH",
            )
        if heard.status == 429:
            raise self.client.fail(
                f"{path} limits our rate already ({heard.said})",
                "a load test needs an endpoint without a rate limit",
            )

    @staticmethod
    def _not_there(heard: Heard) -> bool:
        return heard.status in (404, 405, 501) and not _wrong_model(heard)

    def _refused(self, heard: Heard, dialect: Dialect) -> Exception:
        path = self.client.address.path(dialect.api)
        if _wrong_model(heard):
            return self.client.fail(
                f"{path}: {heard.said}", f"it does not serve {self.model!r}: name another --model"
            )
        if self._not_there(heard):
            return self.client.fail(f"nothing at {path} ({heard.said})", "correct --url or --endpoint-type")
        if heard.html:
            return self.client.fail(
                f"{path} answers with an HTML page ({heard.said})",
                "this is no OpenAI-compatible server; correct --url",
            )
        if not 200 <= heard.status < 300:
            return self.client.fail(f"{path} refuses a request ({heard.said})", "see the server's log")
        kind, message = heard.answer.error_kind, heard.answer.error_message
        if kind == ErrorKind.NO_TOKENS:
            return self.client.fail(
                f"{path} answers without one token", "is the model loaded? try it by hand"
            )
        return self.client.fail(
            f"{path} gives no usable answer ({kind}: {message or heard.said})",
            "try it by hand; see the server's log",
        )


# Part of "owned_by" of a model or of the "server" header → a key of wire.dialect.ACCEPTS.
_ENGINES = (
    ("llamacpp", "llama.cpp"),
    ("llama.cpp", "llama.cpp"),
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("tensorrt", "tensorrt-llm"),
    ("dynamo", "dynamo"),
    ("openai", "openai"),
)


def _wrong_model(heard: Heard) -> bool:
    said = heard.said.lower()
    return (
        heard.status in (400, 404)
        and "model" in said
        and any(
            words in said
            for words in ("not exist", "not found", "unknown model", "no such model", "not available")
        )
    )
