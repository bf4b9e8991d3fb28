from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engine.checkpoint.tiny import TinyFamily, write_tiny_checkpoint


@pytest.mark.parametrize("family", ["qwen3-moe", "deepseek-v3"])
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, family: TinyFamily) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_tiny_checkpoint(tmp_path / name, family, seed, layers=2)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert sum(name.endswith(".safetensors") for name in files) == 3
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    shard = files[-1] if files[-1].endswith(".safetensors") else next(n for n in files if n.endswith(".safetensors"))
    assert (tmp_path / "a" / shard).read_bytes() != (tmp_path / "c" / shard).read_bytes()


def test_tokenizer_maps_bytes_to_themselves(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "qwen3-moe", layers=1)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "Grüße, 世界 \n\t ok"
    encoded = tokenizer.encode(text).ids
    assert encoded == list(text.encode())
    assert tokenizer.decode(encoded) == text
    assert tokenizer.encode("a<|endoftext|>").ids == [97, 256]


def test_neither_presets_nor_the_writer_import_torch() -> None:
    code = "import engine.presets, engine.checkpoint.tiny, engine.distributed, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
