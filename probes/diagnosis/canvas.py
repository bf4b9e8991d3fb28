"""Rectangles and short texts as SVG or PNG, without a drawing library."""

from __future__ import annotations

import struct
import zlib
from typing import Protocol
from xml.sax.saxutils import escape

import numpy as np

Colour = tuple[int, int, int]


class Canvas(Protocol):
    """A picture in pixels, the origin at the top left."""

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None: ...

    def text(self, x: float, y: float, text: str, colour: Colour) -> None:
        """Write `text` with its top left corner at (x, y), some 10 pixels high."""
        ...

    def data(self) -> bytes:
        """The finished file."""
        ...


class SvgCanvas:
    """Scales without loss and can be searched."""

    def __init__(self, width: int, height: int, background: Colour) -> None:
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self._parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">']
        self.rectangle(0, 0, width, height, background)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        box = f'x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.3):.2f}" height="{height:.2f}"'
        self._parts.append(f'<rect {box} fill="#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"/>')

    def text(self, x: float, y: float, text: str, colour: Colour) -> None:
        fill = f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"
        self._parts.append(f'<text x="{x:.2f}" y="{y + 10:.2f}" fill="{fill}">{escape(text)}</text>')

    def data(self) -> bytes:
        return "\n".join([*self._parts, "</svg>\n"]).encode()


class PngCanvas:
    """For where SVG cannot be shown. Letters come from a 3 by 5 font, doubled."""

    def __init__(self, width: int, height: int, background: Colour) -> None:
        self._pixels = np.full((height, width, 3), background, dtype=np.uint8)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        left, top = round(x), round(y)
        right, bottom = max(left + 1, round(x + width)), max(top + 1, round(y + height))
        self._pixels[max(0, top) : bottom, max(0, left) : right] = colour

    def text(self, x: float, y: float, text: str, colour: Colour) -> None:
        for number, letter in enumerate(text.lower()):
            rows = _FONT.get(letter, 0)
            for bit in range(15):
                if rows >> (14 - bit) & 1:
                    self.rectangle(x + number * 8 + bit % 3 * 2, y + bit // 3 * 2, 2, 2, colour)

    def data(self) -> bytes:
        height, width, _ = self._pixels.shape
        rows = np.concatenate((np.zeros((height, 1), dtype=np.uint8), self._pixels.reshape(height, width * 3)), axis=1)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _glyphs(*rows: str) -> dict[str, int]:
    """Glyphs from five lines of drawing, each glyph 3 wide, after a line that names them; # is ink."""
    names = rows[0]
    return {
        name: int("".join(row[i * 4 : i * 4 + 3].ljust(3) for row in rows[1:]).replace("#", "1").replace(" ", "0"), 2)
        for i, name in enumerate(names)
    }


_FONT = {
    **_glyphs(
        "0123456789.%",
        "### ##  ### ### # # ### ### ### ### ###     # #",
        "# #  #    #   # # # #   #     # # # # #       #",
        "# #  #  ### ### ### ### ###   # ### ###      # ",
        "# #  #  #     #   #   # # #   # # #   #     #  ",
        "### ### ### ###   # ### ###   # ### ###  #  # #",
    ),
    **_glyphs(
        "abcdefghijklm",
        "### ##  ### ##  ### ### ### # # ###  ## # # #   # #",
        "# # # # #   # # #   #   #   # #  #    # # # #   ###",
        "### ##  #   # # ##  ##  # # ###  #    # ##  #   ###",
        "# # # # #   # # #   #   # # # #  #  # # # # #   # #",
        "# # ##  ### ##  ### #   ### # # ### ### # # ### # #",
    ),
    **_glyphs(
        "nopqrstuvwxyz",
        "##  ### ### ### ### ### ### # # # # # # # # # # ###",
        "# # # # # # # # # # #    #  # # # # # # # # # #   #",
        "# # # # ### # # ##  ###  #  # # # # ###  #   #   # ",
        "# # # # #   ### # #   #  #  # # # # ### # #  #  #  ",
        "# # ### #     # # # ###  #  ###  #  # # # #  #  ###",
    ),
}
