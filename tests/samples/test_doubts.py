from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compressor import graph
from compressor.records import Array, Tensor
from compressor.samples import Preprocess, Samples, doubts, read

CIFAR = Preprocess(layout="nhwc", mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
IMAGENET = Preprocess(crop=224, mean=(127, 127, 127), std=(128, 128, 128))


def given(folder: Path, name: str, **arrays: Array) -> Samples:
    np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    tensors = [Tensor(key, str(array.dtype), ("batch", *array.shape[1:])) for key, array in arrays.items()]
    return read(
        folder / f"{name}.npz", tensors, {t.name: (1, *array.shape[1:]) for t, array in paired(tensors, arrays)}
    )


def paired(tensors: list[Tensor], arrays: dict[str, Array]) -> list[tuple[Tensor, Array]]:
    return [(tensor, arrays[tensor.name]) for tensor in tensors]


def pixels(n: int, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(0, 255, (n, 8, 8)).astype(np.float32)


def test_samples_of_one_kind_raise_no_doubt(tmp_path: Path) -> None:
    assert doubts(given(tmp_path, "a", x=pixels(20, 0)), given(tmp_path, "b", x=pixels(30, 1))) == ()
    assert doubts(given(tmp_path, "a", x=pixels(20, 0)), None) == ()


def test_few_distinct_samples_are_counted(tmp_path: Path) -> None:
    repeated = np.repeat(pixels(15, 0), 4, axis=0)
    (doubt,) = doubts(given(tmp_path, "a", x=repeated), None)
    assert "only 15 distinct of 60 calibration samples" in doubt


def test_an_input_that_never_changes_is_named(tmp_path: Path) -> None:
    samples = given(tmp_path, "a", x=pixels(20, 0), mask=np.full((20, 5), 0.5, np.float32))
    (doubt,) = doubts(samples, samples)
    assert "'mask' is 0.5 in all samples" in doubt


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (lambda x: x / 255, "spread 0.00"),
        (lambda x: x * 255, "lie outside"),
        (lambda x: (x - 127) / 64, "lie outside"),
        (lambda x: x * 0.1 + 300, "100% of its values lie outside"),
    ],
)
def test_a_set_prepared_in_another_way_is_told(tmp_path: Path, change: object, sign: str) -> None:
    assert callable(change)
    one, other = given(tmp_path, "a", x=pixels(20, 0)), given(tmp_path, "b", x=change(pixels(20, 1)))
    (doubt,) = doubts(one, other)
    assert f"{tmp_path}/b.npz: input 'x' is unlike that in {tmp_path}/a.npz" in doubt
    assert sign in doubt


def test_a_shifted_mean_within_the_range_is_told(tmp_path: Path) -> None:
    narrow = np.random.default_rng(0).normal(size=(20, 64)).astype(np.float32)
    narrow[0, 0] = 100  # the range covers what the other set holds
    (doubt,) = doubts(given(tmp_path, "a", x=narrow), given(tmp_path, "b", x=narrow.clip(-3, 3) + 50))
    assert "its mean is 50" in doubt


def test_integers_are_not_compared(tmp_path: Path) -> None:
    ids = np.arange(200).reshape(20, 10)
    assert doubts(given(tmp_path, "a", x=ids), given(tmp_path, "b", x=ids + 10_000)) == ()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("model", "calibration", "evaluation", "preprocess"),
    [
        ("resnet20_cifar10", "cifar10_calibration1000.npz", "cifar10_test10000.npz", CIFAR),
        ("mlperf_tiny_kws_dscnn_bn", "kws_calibration200.npz", "kws_test800.npz", None),
        ("crepe_tiny", "tones500.npz", None, None),
        ("efficientnet_lite0", "imagenet1000_256.zip", None, IMAGENET),
    ],
)
def test_real_data_raise_no_doubt(
    shared: Path, model: str, calibration: str, evaluation: str | None, preprocess: Preprocess | None
) -> None:
    tensors = graph.open_model(shared / "models" / f"{model}.onnx").inputs
    shapes = {t.name: (1, *(dim for dim in (t.shape or ())[1:] if isinstance(dim, int))) for t in tensors}
    one = read(shared / "data" / calibration, tensors, shapes, preprocess).take(200, seed=0)
    if evaluation:
        other = read(shared / "data" / evaluation, tensors, shapes, preprocess).take(200, seed=0)
    else:
        one, other = one.split(100, seed=0)
    assert doubts(one, other) == ()
    assert doubts(other, one) == ()
