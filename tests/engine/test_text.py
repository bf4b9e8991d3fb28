"""Text in and out, with a byte-level tokenizer: one token a byte, so characters and stop strings span tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.byte_tokenizer import byte_tokenizer
from engine.config import ConfigError, EngineConfig
from engine.text import LetterCodec, TextCodec, TokenizerCodec, text_codec


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    return TokenizerCodec(folder)


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
        TokenizerCodec(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read as a tokenizer"):
        TokenizerCodec(tmp_path)


@given(tokens=st.lists(st.integers(0, 200_000), max_size=30))
def test_every_token_without_meaning_is_one_printable_letter(tokens: list[int]) -> None:
    reader = LetterCodec().reader([])
    pieces = [reader.push(token)[0] for token in tokens]
    assert all(len(piece) == 1 and piece.isprintable() for piece in pieces)
    assert "".join(pieces) == LetterCodec().decode(tokens)


@given(text=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30))
def test_letters_come_back_as_they_were(text: str) -> None:
    assert LetterCodec().decode(LetterCodec().encode(text)) == text


def test_letters_stand_in_only_where_tokens_mean_nothing(tmp_path: Path) -> None:
    made_up = EngineConfig(model="qwen3-30b-a3b", load_format="dummy")
    assert isinstance(text_codec(made_up), LetterCodec)
    assert isinstance(text_codec(EngineConfig(model="qwen3-tiny")), LetterCodec)
    assert isinstance(text_codec(EngineConfig(model="kimi-k2.6", emulate="8x-h200")), LetterCodec)
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        text_codec(EngineConfig(model=str(tmp_path)))
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    assert isinstance(text_codec(EngineConfig(model=str(tmp_path), load_format="dummy")), TokenizerCodec)
