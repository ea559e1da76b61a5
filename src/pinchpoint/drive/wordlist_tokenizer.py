"""A tokenizer in which each word of our prompts is one token: for peers that want one where none was named.

It is a file of the ``tokenizers`` library's format, written as JSON: nothing is downloaded, nothing is imported.
"""

from __future__ import annotations

import json
from pathlib import Path

from pinchpoint.plan.words import WORDS

__all__ = ["write_tokenizer"]

_SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")


def write_tokenizer(place: Path) -> Path:
    """Write it into ``place``, which is made; returns ``place``."""
    place.mkdir(parents=True, exist_ok=True)
    vocabulary = [*_SPECIAL, *(word.decode() for word in WORDS)]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
            for i, name in enumerate(_SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(vocabulary)}, "unk_token": "<unk>"},
    }  # fmt: skip
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1_000_000,
        "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }  # fmt: skip
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    (place / "tokenizer_config.json").write_text(json.dumps(about))
    return place
