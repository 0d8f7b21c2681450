"""Pictures of figures, and the JavaScript that draws them in a page; both by vl-convert, which runs V8.

What else vl-convert is needed for belongs here: it is loaded nowhere else, and not in a process that others fork from.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from compressor.formats.figures.figure import Figure
from compressor.formats.figures.look import PAPER

_SCALE = 2.0
_HEAD_BYTES = 8
_LEVEL = 6
_PLACES, _DIGITS = re.compile(r' (?:d|transform)="[^"]*"'), re.compile(r"(\.\d\d)\d+")
_CLIP = re.compile(r"(?<=[\"#])clip\d+")
"""Names of outlines, which Vega numbers through all that a process draws."""


@dataclass(frozen=True)
class Drawn:
    """A figure, and its picture as SVG."""

    figure: Figure
    svg: str


def draw(figure: Figure) -> Drawn:
    """Give a figure with its picture: light, with its title and legend.

    Raises:
        ValueError: It cannot be drawn.
    """
    import vl_convert

    drawn = str(vl_convert.vegalite_to_svg(figure.spec(PAPER)))
    numbers = {name: f"clip{place}" for place, name in enumerate(dict.fromkeys(_CLIP.findall(drawn)))}
    drawn = _PLACES.sub(_rounded, _CLIP.sub(lambda found: numbers[found[0]], drawn))
    return Drawn(figure, drawn.replace(' opacity="1"', ""))


def _rounded(places: re.Match[str]) -> str:
    """Give coordinates to a hundredth of a pixel."""
    return _DIGITS.sub(r"\1", places[0])


def png(drawn: Drawn) -> bytes:
    """Give a drawn figure as a PNG with two pixels for each of the drawing's."""
    import vl_convert

    return _packed(bytes(vl_convert.svg_to_png(drawn.svg, scale=_SCALE)))


@cache
def bundle() -> str:
    """Give Vega, Vega-Lite and Vega-Embed as one script that leaves `vegaEmbed` in the window and loads nothing."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _packed(picture: bytes) -> bytes:
    """Give a PNG in a third of the bytes: vl-convert 1.9 hardly compresses."""
    chunks = list(_chunks(picture))
    pixels = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    first = [chunk for chunk in chunks if chunk[0] not in {b"IDAT", b"IEND"}]
    whole = [*first, (b"IDAT", zlib.compress(pixels, _LEVEL)), (b"IEND", b"")]
    return picture[:_HEAD_BYTES] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in whole
    )


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give the kind and the body of each chunk of a PNG."""
    at = _HEAD_BYTES
    while at < len(picture):
        length, kind = struct.unpack_from(">I4s", picture, at)
        yield kind, picture[at + _HEAD_BYTES : at + _HEAD_BYTES + length]
        at += length + 12  # its length and kind, and a checksum behind it
