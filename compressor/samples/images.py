"""Samples that are image files in a folder or zip, decoded one at a time.

A new suffix is a word in `SUFFIXES`; where labels can stand is decided in `labels`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples import labels as labelling
from compressor.samples.archive import Members, members
from compressor.samples.fit import Column
from compressor.samples.preprocess import IMAGE_RANK, channel_axis

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Images:
    """The image files that are read, as `[height, width, channels]` in uint8; `values` are their labels."""

    path: Path
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    mode: str  # as Pillow names it: L, RGB, RGBA
    values: labelling.Values | None

    @property
    def n(self) -> int:
        """How many images there are."""
        return len(self.names)

    def rows(self, indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        """Give one decoded image after another."""
        for index, blob in zip(indices, self.blobs(indices), strict=True):
            yield {self.columns[0].name: _decoded(blob, self.mode, self.where(index))}

    def blobs(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give the bytes of one image file after another."""
        with members(self.path) as held:
            for index in indices:
                yield held.read(self.names[index])

    def labels(self, indices: Sequence[int]) -> Array | None:
        """Give the labels of these images, None where there are none."""
        return None if self.values is None else np.asarray(self.values)[list(indices)]

    def where(self, index: int) -> str:
        """Name an image for people."""
        return f"{self.path}/{self.names[index]}"


def images(path: Path, held: Members, tensor: Tensor) -> tuple[Images, tuple[str, ...]]:
    """Give the images of a folder or zip, which has some, for this input, and how their labels were found.

    Raises:
        InputError: The first is damaged, or the labels cannot be matched to the images.
    """
    names = held.names(*SUFFIXES)
    values, notes = labelling.of_files(held, names)
    mode = _MODES.get(_channels(tensor), "RGB")
    first = _decoded(held.read(names[0]), mode, f"{path}/{names[0]}")
    column = Column(tensor.name, first.dtype.str, (len(names), *first.shape))
    return Images(path, (column,), names, mode, values), notes


def _channels(tensor: Tensor) -> int:
    dims = (tensor.shape or ())[1:]
    axis = channel_axis(dims) if len(dims) == IMAGE_RANK else None
    channels = 0 if axis is None else dims[axis]
    return channels if isinstance(channels, int) else 0


def _decoded(blob: bytes, mode: str, where: str) -> Array:
    from PIL import Image

    try:
        with Image.open(BytesIO(blob)) as picture:
            if picture.mode.startswith(("I", "F")):
                raise InputError(f"{where}: expected 8 bits a channel, found mode {picture.mode}; convert it")
            pixels = np.asarray(picture.convert(mode))
    # Pillow reports damage as OSError or, in a PNG chunk, as SyntaxError or ValueError
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{where}: expected an image, found a damaged or unknown file ({error})") from error
    return pixels.reshape(*pixels.shape[:2], -1)
