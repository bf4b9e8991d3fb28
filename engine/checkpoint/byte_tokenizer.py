"""A tokenizer.json of 256 bytes and one end-of-text token, in the Hugging Face tokenizers format."""

from __future__ import annotations

from typing import Any

END_OF_TEXT = 256


def byte_tokenizer() -> dict[str, Any]:
    """Token i < 256 is byte i; 256 is `<|endoftext|>`. No merges, no added prefix space."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": END_OF_TEXT, "content": "<|endoftext|>", **special}],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {letter: byte for byte, letter in enumerate(_byte_letters())} | {"<|endoftext|>": END_OF_TEXT},
            "merges": [],
        },
    }


def _byte_letters() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte (the table of GPT-2's encoder)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    letters, spare = [], 256
    for byte in range(256):
        if byte in printable:
            letters.append(chr(byte))
        else:
            letters.append(chr(spare))
            spare += 1
    return letters
