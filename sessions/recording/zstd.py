"""zstd for several threads at once: a compressor or decompressor object serves one thread at a time."""

from __future__ import annotations

import threading

import zstandard


class PerThread(threading.local):
    """A compressor with these parameters, and a decompressor, of each thread's own."""

    def __init__(self, level: int, checksum: bool, content_size: bool = True) -> None:
        self._compressor = zstandard.ZstdCompressor(
            level=level, write_checksum=checksum, write_content_size=content_size
        )
        self._decompressor = zstandard.ZstdDecompressor()

    def compress(self, data: bytes) -> bytes:
        """One frame of `data`."""
        return self._compressor.compress(data)

    def decompress(self, data: bytes, most: int) -> bytes:
        """Undo `compress`, where no more than `most` bytes come of it; raise zstandard.ZstdError."""
        return self._decompressor.decompress(data, max_output_size=most)
