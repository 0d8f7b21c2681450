"""Samples for the models that prove the checked-in recipes, as the models take them, for `recipes.py`.

Each function takes the folder of models and data and how many samples are scored at most, and gives what calibrates and
what is scored. Another family is another function.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sts

CALIBRATION = 200  # samples, as many as a run takes
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the networks for CIFAR-10

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]


def cifar(shared: Path, scored: int) -> tuple[Arrays, Arrays]:
    """Give CIFAR-10, scaled: float32 [n, 3, 32, 32], and classes."""
    known, asked = (shared / f"data/cifar10_{part}.npz" for part in ("calibration1000", "test10000"))
    return _pictures(known, CALIBRATION), _pictures(asked, scored)


def imagenet(shared: Path, scored: int) -> tuple[Arrays, Arrays]:
    """Give photographs, one a class: float32 [n, 3, 224, 224], and classes."""
    images, labels = _photographs(shared, CALIBRATION + scored, (224, 224))
    return {"input": images[:CALIBRATION]}, {"input": images[CALIBRATION:], "label": labels[CALIBRATION:]}


def scenes(shared: Path, scored: int) -> tuple[Arrays, Arrays]:
    """Give photographs of anything, without labels: float32 [n, 3, 240, 320]."""
    images, _ = _photographs(shared, CALIBRATION + scored, (320, 240))
    return {"input": images[:CALIBRATION]}, {"input": images[CALIBRATION:]}


def tones(shared: Path, scored: int) -> tuple[Arrays, Arrays]:
    """Give frames of sound: float32 [n, 1024], and pitches in Hz."""
    with np.load(shared / "data/tones500.npz") as found:
        frames, labels = found["frames"], found["f0_hz"]
    drawn = np.random.default_rng(0).permutation(len(labels))
    known, asked = drawn[:CALIBRATION], drawn[CALIBRATION:][:scored]
    return {"frames": frames[known]}, {"frames": frames[asked], "label": labels[asked]}


def sentences(shared: Path, scored: int) -> tuple[Arrays, Arrays]:
    """Give STS-B: pairs of sentences as ids and masks, int64 [n, 2, 64], and similarities."""
    known, asked = _pairs(shared, "dev"), _pairs(shared, "test")
    return known, {name: values[:scored] for name, values in asked.items()}


def _pictures(file: Path, wanted: int) -> Arrays:
    with np.load(file) as found:
        raw, labels = found["input"][:wanted], found["label"][:wanted]
    scaled = (raw / np.float32(255) - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return {"input": _channels_first(scaled), "label": labels}


def _photographs(shared: Path, wanted: int, size: tuple[int, int]) -> tuple[Array, Array]:
    """Give some, scaled and cut to a size, as (x - 127) / 128; the place of a file's name is its class."""
    from PIL import Image, ImageOps

    with zipfile.ZipFile(shared / "data/imagenet1000_256.zip") as found:
        names = sorted(name for name in found.namelist() if name.endswith(".jpg"))
        drawn = np.random.default_rng(0).permutation(len(names))[:wanted]
        opened = [Image.open(BytesIO(found.read(names[place]))).convert("RGB") for place in drawn]
    cut = [ImageOps.fit(image, size, Image.Resampling.BILINEAR, bleed=1 / 16) for image in opened]  # a crop of 0.875
    return _channels_first((np.stack([np.asarray(image, np.float32) for image in cut]) - 127) / 128), drawn


def _channels_first(images: Array) -> Array:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2), np.float32)


def _pairs(shared: Path, part: str) -> Arrays:
    vocabulary = shared / "data/bert-base-uncased-vocab.txt"
    with tempfile.TemporaryDirectory() as folder:
        sts.write(shared / f"data/stsb-en-{part}.csv", vocabulary, out := Path(folder) / "pairs.npz")
        with np.load(out) as found:
            return {name: found[name] for name in found.files}
