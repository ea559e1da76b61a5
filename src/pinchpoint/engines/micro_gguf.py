"""A random-weight llama model in a GGUF file, written in a fraction of a second.

It says nothing of sense, but it costs what a model costs: prefill is bound by arithmetic, a decode step by
reading weights and KV cache, and both share one engine loop. That is all a measurement needs.

The vocabulary is built by rule, so that every sampled token is one printable piece (one event each) and text
prompts have lengths that can be worked out by hand: a word of n syllables (consonant + vowel) is n tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MicroModel", "vocabulary", "write_gguf"]

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6  # token types of llama.cpp
_EOS = 2
_SPACE = "▁"  # how SentencePiece writes a space


class MicroModel(msgspec.Struct, frozen=True):
    """Shape of the model. On one core the default was seen to prefill 2,048 tokens in 0.35 s and 4,096 in 1.0 s,
    and to take 1–4 ms for a decode step of 1–8 streams."""

    layers: int = 2
    hidden: int = 192
    heads: int = 3
    kv_heads: int = 1
    feed_forward: int = 576
    vocabulary: int = 4096
    context: int = 131_072
    end_share: float = 1 / 256  # chance that a sampled token is end-of-sequence, where the client lets it
    seed: int = 0


def vocabulary(size: int) -> list[tuple[str, float, int]]:
    """``size`` tokens as (piece, score, type): specials, bytes, printable ASCII, syllables, then longer words.

    SentencePiece joins neighbours only where the joined piece is a token as well, and joins the best score
    first: a shorter piece always scores higher here, so syllables form before words.

    Raises:
        ValueError: fewer tokens than the fixed part needs.
    """
    tokens = [("<unk>", 0.0, _UNKNOWN), ("<s>", 0.0, _CONTROL), ("</s>", 0.0, _CONTROL)]
    tokens += [(f"<0x{byte:02X}>", 0.0, _BYTE) for byte in range(256)]
    pieces = _pieces()
    tokens += [(next(pieces), 0.0, _NORMAL) for _ in range(_SINGLE)]
    if size < len(tokens) + 200:
        raise ValueError(f"the vocabulary needs {len(tokens) + 200} tokens at least, got {size}")
    for rank in range(size - len(tokens)):
        tokens.append((next(pieces), -float(rank + 1), _NORMAL))
    return tokens


_SINGLE = 95  # printable ASCII: 94 signs, and the space as SentencePiece writes it


def _pieces() -> Iterator[str]:
    yield _SPACE
    yield from (chr(code) for code in range(0x21, 0x7F))
    syllables = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]
    yield from syllables
    yield from (_SPACE + syllable for syllable in syllables)
    # Filler, never reached from plain words of one-letter syllables: capitals make them unique.
    for first in syllables:
        for second in syllables:
            yield _SPACE + first.upper() + second


def write_gguf(path: Path, model: MicroModel = MicroModel()) -> None:  # noqa: B008  (frozen value)
    """Write the model to ``path``; the same ``model`` gives the same bytes.

    Raises:
        ImportError: the package ``gguf`` is not installed.
    """
    import gguf

    tokens = vocabulary(model.vocabulary)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("pinchpoint micro")
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.hidden)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.feed_forward)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(model.hidden // model.heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(model.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece for piece, _, _ in tokens])
    writer.add_token_scores([score for _, score, _ in tokens])
    writer.add_token_types([kind for _, _, kind in tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(_EOS)
    writer.add_add_bos_token(False)  # a prompt of n ids is n tokens, not n + 1
    writer.add_add_space_prefix(True)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    for name, weight in _weights(model):
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _weights(model: MicroModel) -> Iterator[tuple[str, NDArray[np.generic]]]:
    import numpy as np

    random = np.random.Generator(np.random.PCG64(model.seed))

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return random.standard_normal((rows, columns), dtype=np.float32) * np.float32(1 / columns**0.5)

    def ones() -> NDArray[np.float32]:
        return np.ones(model.hidden, dtype=np.float32)

    head = model.hidden // model.heads
    embedding = random.standard_normal((model.vocabulary, model.hidden), dtype=np.float32)
    embedding[:, 0] = 1.0
    output = matrix(model.vocabulary, model.hidden)
    output[:, 0] = _bias(model)
    yield "token_embd.weight", embedding.astype(np.float16)
    for layer in range(model.layers):
        to_hidden = matrix(model.hidden, model.hidden), matrix(model.hidden, model.feed_forward)
        for weight in to_hidden:
            weight *= 0.25  # small against the embedding, so that the last norm divides by about 1
            weight[0] = 0.0  # dimension 0 stays as embedded, see _bias
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", ones()
        yield f"{block}.attn_q.weight", matrix(model.heads * head, model.hidden).astype(np.float16)
        yield f"{block}.attn_k.weight", matrix(model.kv_heads * head, model.hidden).astype(np.float16)
        yield f"{block}.attn_v.weight", matrix(model.kv_heads * head, model.hidden).astype(np.float16)
        yield f"{block}.attn_output.weight", to_hidden[0].astype(np.float16)
        yield f"{block}.ffn_norm.weight", ones()
        yield f"{block}.ffn_gate.weight", matrix(model.feed_forward, model.hidden).astype(np.float16)
        yield f"{block}.ffn_up.weight", matrix(model.feed_forward, model.hidden).astype(np.float16)
        yield f"{block}.ffn_down.weight", to_hidden[1].astype(np.float16)
    yield "output_norm.weight", ones()
    yield "output.weight", output.astype(np.float16)


def _bias(model: MicroModel) -> NDArray[np.float32]:
    """Column 0 of the output weights: what makes a token likely whatever was read before.

    A llama model has no bias, but dimension 0 of the hidden state is 1 for every token and no layer writes to
    it, so after the last norm it is a positive constant. Specials and bytes get a column that rules them out
    (half a character is held back by the server, and one token would no longer be one event); end-of-sequence
    gets the logit that gives it ``end_share``.
    """
    import numpy as np

    printable = model.vocabulary - 259
    bias = np.zeros(model.vocabulary, dtype=np.float32)
    bias[:259] = -100.0
    bias[_EOS] = np.log(model.end_share * printable)
    return bias
