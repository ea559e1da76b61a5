"""Every byte the null engine sends, written before it is asked for."""

from __future__ import annotations

__all__ = ["BLOCK", "Rendered", "chunk", "whole"]

BLOCK = 64  # events of one write of the firehose

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
_COMPLETION = (
    b'{"id":"cmpl-1","object":"text_completion","created":1,"model":"null-engine","choices":'
    b'[{"index":0,"text":" tok","logprobs":null,"finish_reason":null}],"usage":null}'
)
_CHAT = (
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"null-engine","choices":'
    b'[{"index":0,"delta":{"content":" tok"},"logprobs":null,"finish_reason":null}],"usage":null}'
)
_USAGE = b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}'


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    """A response of known length."""
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


class Rendered:
    """The events of one dialect, chat or completions."""

    def __init__(self, chat: bool) -> None:
        self.chat = chat
        self._token = _CHAT if chat else _COMPLETION
        self.token = chunk(b"data: %b\n\n" % self._token)
        finish = self._token.replace(b'"finish_reason":null', b'"finish_reason":"length"')
        self.finish = chunk(b"data: %b\n\n" % finish)
        self._finish = finish
        self.block = self.token * BLOCK

    def token_with_usage(self, prompt: int, tokens: int, last: bool) -> bytes:
        """A token beside the usage so far."""
        usage = _USAGE % (prompt, tokens, prompt + tokens)
        event = (self._finish if last else self._token).replace(b'"usage":null', b'"usage":' + usage)
        return chunk(b"data: %b\n\n" % event)

    def end(self, prompt: int, tokens: int, usage: bool) -> bytes:
        """What comes after the last token."""
        said = b""
        if usage:
            counts = _USAGE % (prompt, tokens, prompt + tokens)
            said = chunk(
                b'data: {"id":"1","object":"chunk","created":1,"model":"null-engine","choices":[],"usage":%b}\n\n'
                % counts
            )
        return said + chunk(b"data: [DONE]\n\n") + LAST

    def plain(self, prompt: int, tokens: int) -> bytes:
        """The whole answer as one JSON body."""
        text = b" tok" * tokens
        held = b'"message":{"role":"assistant","content":"%b"}' if self.chat else b'"text":"%b"'
        return whole(
            b'{"id":"1","object":"%b","created":1,"model":"null-engine","choices":[{"index":0,%b,"finish_reason":"length"}],'
            b'"usage":%b}'
            % (
                b"chat.completion" if self.chat else b"text_completion",
                held % text,
                _USAGE % (prompt, tokens, prompt + tokens),
            )
        )
