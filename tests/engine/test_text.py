"""Text in and out, with a byte-level tokenizer: one token a byte, so characters and stop strings span tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.byte_tokenizer import byte_tokenizer
from engine.config import ConfigError
from engine.text import TextCodec


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    return TextCodec(folder)


def read(codec: TextCodec, text: str, stop: list[str]) -> tuple[list[str], bool]:
    """The pieces that a reader lets out for the tokens of `text`, and whether it stopped."""
    reader = codec.reader(stop)
    pieces = []
    for token in codec.encode(text):
        piece, stopped = reader.push(token)
        pieces.append(piece)
        if stopped:
            return pieces, True
    return [*pieces, reader.rest()], False


@given(text=st.text(max_size=30))
def test_pieces_add_up_to_the_text(codec: TextCodec, text: str) -> None:
    assert codec.decode(codec.encode(text)) == text
    assert "".join(read(codec, text, [])[0]) == text


@given(text=st.text("abc", max_size=30), stop=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_a_stop_string_ends_the_text_just_before_it(codec: TextCodec, text: str, stop: list[str]) -> None:
    pieces, stopped = read(codec, text, stop)
    ends = [(text.find(s) + len(s), text.find(s)) for s in stop if s in text]
    assert stopped == bool(ends)
    if ends:
        first = min(end for end, _ in ends)  # the string completed first wins, and the earliest start among equals
        assert "".join(pieces) == text[: min(start for end, start in ends if end == first)]
    else:
        assert "".join(pieces) == text


def test_text_that_may_begin_a_stop_string_is_held_back(codec: TextCodec) -> None:
    assert read(codec, "a<|b", ["<|end|>"]) == (["a", "", "", "<|b", ""], False)


def test_a_character_of_several_tokens_comes_once(codec: TextCodec) -> None:
    assert read(codec, "é!", [])[0] == ["", "é", "!", ""]


def test_a_folder_without_tokenizer_or_with_a_broken_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        TextCodec(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read as a tokenizer"):
        TextCodec(tmp_path)
