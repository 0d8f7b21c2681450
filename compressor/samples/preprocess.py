"""From a raw image to a model's input.

A new step is a field of `Preprocess` and a line in `prepare`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, PositiveInt

from compressor.errors import InputError
from compressor.records import Array
from compressor.units import write_shape

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
IMAGE_RANK = 3
_CHANNELS = (1, 3, 4)


class Preprocess(BaseModel, frozen=True, extra="forbid"):
    """Resize, centre crop, (x - mean) / std, then the model's layout. What is absent is not done."""

    layout: Literal["nhwc", "nchw"] | None = Field(None, description="of the raw data; told from the sizes if absent")
    resize: PositiveInt | None = Field(None, description="length of the shorter side in pixels; bilinear, antialiased")
    crop: PositiveInt | None = Field(None, description="side of the centre square that is kept, in pixels")
    mean: tuple[FiniteFloat, ...] | None = Field(None, description="one, or one a channel, in units of the raw values")
    std: tuple[Positive, ...] | None = Field(None, description="one, or one a channel, in units of the raw values")

    def prepare(self, raw: Array, dims: Sequence[int | str | None]) -> Array:
        """Give one image as a model wants it that has these dimensions after its batch axis.

        Args:
            raw: One image, `[height, width, channels]` or `[channels, height, width]`.
            dims: Three dimensions, of which only those that the model fixes need be numbers.

        Raises:
            InputError: A layout cannot be told, the crop is larger than the image, or mean or std fit no channel.
        """
        image = np.moveaxis(raw, self._raw_axis(raw.shape), -1)
        if self.resize is not None:
            image = _resized(image, self.resize)
        if self.crop is not None:
            image = _cropped(image, self.crop)
        if self.mean is not None or self.std is not None:
            image = (np.float32(image) - _each("mean", self.mean or (0,), image)) / _each(
                "std", self.std or (1,), image
            )
        wanted = channel_axis(dims, image.shape[-1:])
        return np.moveaxis(image, -1, _known(wanted, "the model's input", dims, "state its shape in the recipe"))

    def _raw_axis(self, shape: tuple[int, ...]) -> int:
        if self.layout is not None:
            return -1 if self.layout == "nhwc" else 0
        return _known(channel_axis(shape), "the raw data", shape, "set data.preprocess.layout to nhwc or nchw")


def channel_axis(dims: Sequence[int | str | None], channels: Sequence[int] = _CHANNELS) -> int | None:
    """Give 0 or -1, the end of three dimensions that is a number of channels; None where both or neither is."""
    ends = dims[0] in channels, dims[-1] in channels
    return {(True, False): 0, (False, True): -1}.get(ends)


def _known(axis: int | None, what: str, dims: Sequence[int | str | None], remedy: str) -> int:
    if axis is None:
        found = "x".join("?" if dim is None else str(dim) for dim in dims)
        raise InputError(f"data.preprocess: cannot tell which axis of {what} ({found}) holds the channels; {remedy}")
    return axis


def _resized(image: Array, side: int) -> Array:
    from PIL import Image

    height, width, _ = image.shape
    shorter = min(height, width)
    size = (width * side // shorter, height * side // shorter)
    planes = image if image.dtype == np.uint8 else image.astype(np.float32)
    # plane by plane: Pillow has no float mode with channels, and it would weigh colours by a fourth channel
    resized = [Image.fromarray(planes[..., c]).resize(size, Image.Resampling.BILINEAR) for c in range(image.shape[-1])]
    return np.stack([np.asarray(plane) for plane in resized], axis=-1)


def _cropped(image: Array, side: int) -> Array:
    height, width, _ = image.shape
    if side > min(height, width):
        raise InputError(
            f"data.preprocess.crop: {side} is larger than an image of {write_shape((height, width))}; "
            f"crop less, or resize to at least {side} first"
        )
    top, left = (height - side) // 2, (width - side) // 2
    return image[top : top + side, left : left + side]


def _each(field: str, values: Sequence[float], image: Array) -> Array:
    channels = image.shape[-1]
    if len(values) not in (1, channels):
        raise InputError(
            f"data.preprocess.{field}: found {len(values)} values, expected 1 or one for each of {channels} channels"
        )
    return np.asarray(values, np.float32)
