"""Text in and out of the engine: the checkpoint's tokenizer, incremental detokenisation and stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_FILE = "tokenizer.json"


class TextCodec:
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
        return TextReader(self._tokenizer, stop)


class TextReader:
    """Text of a growing token sequence. A character comes once all its bytes have, and text that may yet begin a stop
    string is held back; a stop string itself and what follows it never comes."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._stop = [text for text in stop if text]
        self._held = ""

    def push(self, token: int) -> tuple[str, bool]:
        """Take the next token; return the text that is now certain, and whether a stop string was completed."""
        text = self._held + (self._stream.step(self._tokenizer, token) or "")
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


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` without completing it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
