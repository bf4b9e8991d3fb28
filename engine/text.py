"""Text in and out of the engine: the checkpoint's tokenizer, incremental detokenisation and stop strings.

Models whose tokens mean nothing (emulated ones, made-up weights) have text without a tokenizer too: a letter a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.config import ConfigError, EngineConfig
from engine.presets import has_made_up_weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_FILE = "tokenizer.json"
_FIRST_LETTER, _LETTERS = ord(" "), 95
"""The printable letters of ASCII: one byte each, so that none is ever incomplete."""


class TextCodec(Protocol):
    """Text to tokens and back."""

    def encode(self, text: str) -> list[int]:
        """The text's token ids."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The whole text of these tokens."""

    def reader(self, stop: Sequence[str]) -> TextReader:
        """A reader of one request's output tokens, with its stop strings."""


def text_codec(config: EngineConfig) -> TextCodec:
    """The model's tokenizer; letters for a model without one whose tokens mean nothing. Raise ConfigError."""
    has_tokenizer = (Path(config.model) / TOKENIZER_FILE).is_file()
    if not has_tokenizer and (config.emulate or has_made_up_weights(config)):
        return LetterCodec()
    return TokenizerCodec(config.model)


class LetterCodec:
    """A token a byte into the model, a printable letter a token out of it. Printable ASCII comes back as it was."""

    def encode(self, text: str) -> list[int]:
        """The bytes of the text in UTF-8."""
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """A letter for each token."""
        return "".join(map(_letter, tokens))

    def reader(self, stop: Sequence[str]) -> TextReader:
        """A reader of one request's output tokens, with its stop strings."""
        return TextReader(_letter, stop)


class TokenizerCodec:
    """One tokenizer. Loading it is the only thing here that imports the tokenizers library."""

    def __init__(self, folder: str | Path) -> None:
        """Read FOLDER/tokenizer.json. Raise ConfigError when there is none or it cannot be read."""
        path = Path(folder) / TOKENIZER_FILE
        if not path.is_file():
            raise ConfigError(f"{folder} has no {TOKENIZER_FILE}: send prompts as token ids, without stop strings")
        from tokenizers import Tokenizer

        try:
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ConfigError(f"{path} cannot be read as a tokenizer: {error}") from None

    def encode(self, text: str) -> list[int]:
        """The text's token ids, with the special tokens that the tokenizer adds by itself."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The whole text of these tokens, special tokens left out."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def reader(self, stop: Sequence[str]) -> TextReader:
        """A reader of one request's output tokens, with its stop strings."""
        return TextReader(_detokenizer(self._tokenizer), stop)


class TextReader:
    """Text of a growing token sequence. A character comes once all its bytes have, and text that may yet begin a stop
    string is held back; a stop string itself and what follows it never comes."""

    def __init__(self, text_of: Callable[[int], str], stop: Sequence[str]) -> None:
        """`text_of` takes the tokens in turn and returns the text that each completes."""
        self._text_of = text_of
        self._stop = [text for text in stop if text]
        self._held = ""

    def push(self, token: int) -> tuple[str, bool]:
        """Take the next token; return the text that is now certain, and whether a stop string was completed."""
        text = self._held + self._text_of(token)
        cut = min((at for at in (text.find(stop) for stop in self._stop) if at >= 0), default=-1)
        if cut >= 0:
            self._held = ""
            return text[:cut], True
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def rest(self) -> str:
        """Take the text held back, for a request that ends without a stop string."""
        text, self._held = self._held, ""
        return text


def _letter(token: int) -> str:
    return chr(_FIRST_LETTER + (token - _FIRST_LETTER) % _LETTERS)


def _detokenizer(tokenizer: Tokenizer) -> Callable[[int], str]:
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=True)
    return lambda token: stream.step(tokenizer, token) or ""


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` without completing it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
