"""What the probe finds at endpoints of known habits, and what it says of those that cannot be driven."""

import socket

import msgspec
import pytest
from drive_kit import HEAD, chunk, plan_for, token

from pinchpoint.drive.probe import probe
from pinchpoint.engines.scripted import Reply, Script
from pinchpoint.errors import EndpointError, PlanError
from pinchpoint.plan.model import Profile

FAST = Reply(ttft_ms=2, gap_ms=0.5)
SMALL = (Profile("p", 16, 4),)


def found(url, script=None, profiles=SMALL, **endpoint):
    return probe(plan_for(url, endpoint={"model": None, **endpoint}, profiles=profiles))


def test_an_endpoint_that_takes_everything(scripted):
    probed = found(scripted(Script(replies=(FAST,))).url)
    dialect = probed.dialect
    assert probed.model == "scripted"
    assert (dialect.api, dialect.path, dialect.token_ids, dialect.id_overhead) == (
        "completions", "/v1/completions", True, 0,
    )  # fmt: skip
    assert {"ignore_eos", "min_tokens", "stream_options", "max_tokens"} <= dialect.accepts
    assert dialect.notes == ()
    assert probed.facts["usage"] is True
    assert probed.facts["osl_exact"] is True
    assert len(probed.facts["connect_ms"]) == 1


def test_chat_only(scripted):
    """No completions path: text prompts over chat; 2 tokens a word and 7 of template are found from the counts."""
    server = scripted(Script(replies=(FAST,), completions=False, tokens_per_word=2, template_tokens=7))
    probed = found(server.url)
    assert (probed.dialect.api, probed.dialect.token_ids) == ("chat", False)
    fit = probed.dialect.fit
    assert (fit.overhead, fit.per_word, fit.exact) == (7.0, 2.0, True)
    assert any("no completions API" in note for note in probed.dialect.notes)


def test_chat_asked_for(scripted):
    assert found(scripted(Script(replies=(FAST,))).url, api="chat").dialect.path == "/v1/chat/completions"


def test_token_ids_refused(scripted):
    probed = found(scripted(Script(replies=(FAST,), token_ids=False)).url)
    assert (probed.dialect.api, probed.dialect.token_ids) == ("completions", False)
    assert probed.dialect.fit.exact
    assert any("prompt must be a string" in note for note in probed.dialect.notes)


@pytest.mark.parametrize("refused", [("ignore_eos",), ("ignore_eos", "min_tokens"), ("stream_options",)])
def test_fields_the_server_names_are_left_out_and_no_others(scripted, refused):
    server = scripted(Script(replies=(FAST,), refused_fields=refused))
    probed = found(server.url)
    gone = {"ignore_eos", "min_tokens", "stream_options", "max_tokens"} - probed.dialect.accepts
    assert gone == set(refused)
    assert all(any(field in note for note in probed.dialect.notes) for field in refused)
    assert probed.facts["usage"] is ("stream_options" not in refused)


def test_no_usage_is_said(scripted):
    probed = found(scripted(Script(replies=(msgspec.structs.replace(FAST, usage="none"),))).url)
    assert probed.facts["usage"] is False
    assert any("no usage" in note for note in probed.dialect.notes)


def test_without_usage_text_is_counted_by_tokenize(scripted):
    server = scripted(
        Script(replies=(msgspec.structs.replace(FAST, usage="none"),), token_ids=False, tokens_per_word=3)
    )
    probed = found(server.url)
    assert probed.facts["prompt_count_by"] == "tokenize"
    assert (probed.dialect.fit.per_word, probed.dialect.fit.exact) == (3.0, True)


def test_a_server_that_adds_a_token(scripted):
    """It counts one more than was sent (BOS): taken off again, so that the prompt has the length asked for."""
    counts = [33, 33, 257, 114]  # of prompts of 32, 32, 256 and 113 ids
    server = scripted(Script(replies=tuple(msgspec.structs.replace(FAST, prompt_tokens=n) for n in counts)))
    probed = found(server.url)
    assert probed.dialect.id_overhead == 1
    assert any("adds 1 token" in note for note in probed.dialect.notes)


def test_answers_that_end_early(scripted):
    probed = found(scripted(Script(replies=(msgspec.structs.replace(FAST, tokens=3),))).url)
    assert probed.facts["osl_exact"] is False
    assert any("it gave 3" in note for note in probed.dialect.notes)


def test_a_profile_longer_than_the_model(scripted):
    probed = found(scripted(Script(replies=(FAST,), context=1000)).url, profiles=(Profile("big", 999, 2),))
    assert probed.dialect.max_model_len == 1000
    assert any("big 999/2 needs 1001 tokens" in note for note in probed.dialect.notes)


def test_not_streamed(scripted):
    probed = found(scripted(Script(replies=(msgspec.structs.replace(FAST, streamed=False),))).url)
    assert any("not streamed" in note for note in probed.dialect.notes)


def test_an_open_socket_after_done_does_not_hold_the_probe_up(scripted):
    assert (
        found(scripted(Script(replies=(msgspec.structs.replace(FAST, done="held open"),))).url).model
        == "scripted"
    )


def test_skip_check_asks_nothing(odd):
    server = odd(None)
    plan = plan_for(server.url, endpoint={"model": "m"}, skip_check=True)
    assert probe(plan).model == "m"
    assert server.requests == []
    with pytest.raises(PlanError, match="--model"):
        probe(plan_for(server.url, endpoint={"model": None}, skip_check=True))


def test_every_url_is_asked(scripted):
    good, bad = scripted(Script(replies=(FAST,))), scripted(Script(replies=(Reply(status=500),)))
    plan = plan_for(good.url, bad.url, endpoint={"model": None}, profiles=SMALL)
    with pytest.raises(EndpointError, match=str(bad.port)):
        probe(plan)
    assert len(probe(plan_for(good.url, good.url, endpoint={"model": None})).facts["connect_ms"]) == 2


BAD = [
    # script, endpoint fields, words of the message
    (Script(prefix="/a/b"), {"urls": ""}, ("/v1/models", "404", "--url")),
    (Script(), {"model": "other"}, ("'other'", "scripted", "--model")),
    (Script(more_models=("two",)), {}, ("several models", "scripted", "two", "--model")),
    (Script(api_key="k"), {}, ("401", "--api-key env:NAME")),
    (Script(replies=(Reply(status=500, body='{"error": {"message": "CUDA out of memory"}}'),)), {},
     ("500", "CUDA out of memory", "log")),
    (Script(replies=(Reply(error_after=0, error_message="engine is dead"),)), {}, ("engine is dead",)),
    (Script(replies=(Reply(raw=((0, b"data: [DONE]\n\n"),)),)), {}, ("without one token",)),
    (Script(replies=(Reply(body="<html><body>Welcome</body></html>", content_type="text/html"),)), {},
     ("HTML", "Welcome", "--url")),
    (Script(replies=(Reply(status=429),)), {}, ("429", "rate")),
]  # fmt: skip


@pytest.mark.parametrize(("script", "endpoint", "words"), BAD)
def test_what_cannot_be_driven_is_told_with_what_where_and_what_to_do(scripted, script, endpoint, words):
    server = scripted(script)
    url = server.url.removesuffix(script.prefix)
    fields = {key: value for key, value in endpoint.items() if key != "urls"}
    with pytest.raises(EndpointError) as refused:
        found(url, **fields)
    message = str(refused.value)
    assert f"127.0.0.1:{server.port}" in message
    assert all(word in message for word in words), message


def test_no_server():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(EndpointError, match=r"nothing listens at 127.0.0.1:\d+ .*start the server"):
        found(url)


def test_no_such_host():
    with pytest.raises(EndpointError, match="cannot be resolved"):
        found("http://no-such-host.invalid:8000")


def test_no_http(odd):
    async def banner(n, body, writer):
        writer.write(b"220 mail.example ESMTP\r\n")

    with pytest.raises(EndpointError, match=r"no HTTP/1\.1 server"):
        found(odd(banner).url)


def test_hangs_up(odd):
    async def nothing(n, body, writer):
        return

    with pytest.raises(EndpointError, match="closed without an answer"):
        found(odd(nothing).url)


def test_a_server_with_no_list_of_models(odd):
    """Only the completions path exists: fine where the model is named."""

    async def only_completions(n, body, writer):
        if not body:
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\nnot found")
            return
        asked = msgspec.json.decode(body)
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}
        last = b"data: " + msgspec.json.encode({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n"
        tokens = token() * (asked["max_tokens"] - 1) + token(finish="length")
        writer.write(HEAD + chunk(tokens + last) + b"0\r\n\r\n")

    server = odd(only_completions)
    with pytest.raises(EndpointError, match="name the --model"):
        found(server.url)
    assert found(server.url, model="m").dialect.token_ids


def test_ids_out_of_vocabulary_are_drawn_from_lower(odd):
    """As vLLM says it; the vocabulary is 600."""

    async def small_vocabulary(n, body, writer):
        if not body:
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        asked = msgspec.json.decode(body)
        if max(asked["prompt"]) >= 600:
            text = b'{"error": {"message": "Token id %d is out of vocabulary", "code": 400}}' % max(
                asked["prompt"]
            )
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
            return
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}
        last = b"data: " + msgspec.json.encode({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n"
        writer.write(HEAD + chunk(token() * asked["max_tokens"] + last) + b"0\r\n\r\n")

    dialect = found(odd(small_vocabulary).url, model="m").dialect
    assert (dialect.token_ids, dialect.id_low, dialect.id_high) == (True, 10, 99)


def test_self_signed(scripted, self_signed):
    server = scripted(Script(certificate=self_signed, replies=(FAST,)))
    with pytest.raises(EndpointError, match=r"certificate .*--insecure"):
        found(server.url)
    assert found(server.url, verify=False).model == "scripted"
    assert found(server.url, ca_file=self_signed).model == "scripted"


def test_the_key_is_sent_and_never_said(scripted, odd, monkeypatch):
    key = "sk-a-very-secret-key-7f3a"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server = scripted(Script(api_key=key, replies=(FAST,)))
    assert found(server.url).model == "scripted"

    async def parrot(n, body, writer):
        text = b'{"error": {"message": "Incorrect API key provided: %b"}}' % key.encode()
        writer.write(b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))

    with pytest.raises(EndpointError) as refused:
        found(odd(parrot).url)
    assert "401" in str(refused.value)
    assert key not in str(refused.value)
