"""Feeds put together into what a model takes at once, in an order drawn from a seed, and varied.

Another way of varying inputs, which must need no label, is a step of `varied`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compressor.errors import RungError
from compressor.records import Array, Feeds, Outputs
from compressor.samples import Samples

if TYPE_CHECKING:
    from compressor.stages.recover.call import Tensor

Run = Callable[[Feeds], Outputs]

_POOL_BYTES = 256_000_000
"""As much of the inputs is kept and drawn from at a time."""
_SAME = 1e-3
_CHANNELS = (1, 3, 4)
_SMALLEST_SIDE = 16
_SHIFT = 8
"""Images are shifted by at most an eighth of their side."""
_IMAGE_AXES = 4


def joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Put arrays of the same names one after another along their first axis.

    Raises:
        ValueError: They are several and have no axes, or other sizes.
    """
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def asked(run: Run, feeds: Sequence[Feeds], *, many: bool) -> Outputs:
    """Give the outputs for all feeds, one after another; `many`: the model takes all at once."""
    return run(joined(feeds)) if many else joined([run(feed) for feed in feeds])


def takes_many(run: Run, feeds: Sequence[Feeds]) -> bool:
    """Tell whether a model gives for several feeds at once what it gives for one after another."""
    try:
        together, apart = asked(run, feeds, many=True), asked(run, feeds, many=False)
    except (
        RungError,
        ValueError,
    ):  # it takes no other batch than its own, or outputs have no axes or sizes of their own
        return False
    return all(agrees(apart[name], together[name]) for name in apart)


def agrees(wanted: Array, found: Array) -> bool:
    """Tell whether two outputs differ by no more than rounding; what are no floats may differ where rounding decides.

    Sizes must be the same, and the largest difference of floats at most a thousandth of the largest value.
    """
    if wanted.shape != found.shape:
        return False
    if wanted.dtype.kind != "f" or not wanted.size:
        return True
    with np.errstate(invalid="ignore"):  # infinity beside infinity; such outputs agree with nothing
        return bool(np.abs(wanted - found).max() <= _SAME * np.abs(wanted).max())


def tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Give arrays as tensors of their own.

    Raises:
        RungError: Elements are of a type that torch lacks, as text is.
    """
    import torch

    try:
        return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    except TypeError as error:
        raise RungError(f"torch has no elements of the type of {', '.join(arrays)}") from error


def shuffled(samples: Samples, size: int, seed: int) -> Iterator[list[Feeds]]:
    """Give `size` feeds at a time, or as many as there are, without end and in an order drawn anew for each pass.

    Of inputs that are large together, a part is read and drawn from before the next.
    """
    rng = np.random.default_rng(seed)
    feed_bytes = sum(array.nbytes for array in next(iter(samples)).values())
    room = max(size, _POOL_BYTES // max(feed_bytes, 1)) * samples.per_feed
    pool: list[Feeds] = []
    while True:
        if not pool or room < len(samples):
            pool = list(samples.take(room, int(rng.integers(2**31))))
        order, n = rng.permutation(len(pool)), min(size, len(pool))
        for start in range(0, len(pool) - n + 1, n):
            yield [pool[i] for i in order[start : start + n]]


def varied(feeds: list[Feeds], rng: np.random.Generator) -> list[Feeds]:
    """Vary images that are a model's only input: mirror, shift and mix them; others stay as they are."""
    if len(feeds[0]) != 1:
        return feeds
    ((name, first),) = feeds[0].items()
    space = _space(first)
    if space is None:
        return feeds
    images = np.concatenate([feed[name] for feed in feeds])
    moved = np.stack([_moved(image, space, rng) for image in images])
    return [{name: part} for part in np.split(_mixed(moved, rng), len(feeds))]


def _space(array: Array) -> tuple[int, int] | None:
    """Give the two axes of space of one image, which has no batch axis; None where these are no images."""
    if array.ndim != _IMAGE_AXES or array.dtype.kind != "f":
        return None
    for channels, space in ((1, (2, 3)), (3, (1, 2))):
        if array.shape[channels] in _CHANNELS and min(array.shape[axis] for axis in space) >= _SMALLEST_SIDE:
            return space[0] - 1, space[1] - 1
    return None


def _moved(image: Array, space: tuple[int, int], rng: np.random.Generator) -> Array:
    """Shift an image, its edges going on where it ends, and mirror every other one."""
    for axis in space:
        side = image.shape[axis]
        most = side // _SHIFT
        places = np.clip(np.arange(side) + rng.integers(-most, most + 1), 0, side - 1)
        mirrored = axis == space[1] and rng.random() < 1 / 2
        image = image.take(places[::-1] if mirrored else places, axis)
    return image


def _mixed(images: Array, rng: np.random.Generator) -> Array:
    """Lay over every other image a part of another one, of any share."""
    share = rng.random(len(images)) * (rng.random(len(images)) < 1 / 2)
    weights: Any = share.reshape(-1, *(1,) * (images.ndim - 1)).astype(images.dtype)
    mixed: Array = images * (1 - weights) + images[rng.permutation(len(images))] * weights
    return mixed
