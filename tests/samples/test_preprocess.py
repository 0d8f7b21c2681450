import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from compressor.errors import InputError
from compressor.records import Array
from compressor.samples import Preprocess
from compressor.samples.preprocess import channel_axis


def image(height: int, width: int, channels: int = 3) -> Array:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)


def test_resize_equals_pillow_on_the_colour_image_with_the_shorter_side_as_asked() -> None:
    raw = image(40, 60)
    ready = Preprocess(layout="nhwc", resize=20).prepare(raw, (20, 30, 3))
    expected = Image.fromarray(raw).resize((30, 20), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(ready, np.asarray(expected))


def test_crop_keeps_the_centre() -> None:
    raw = image(10, 8)
    ready = Preprocess(layout="nhwc", crop=4).prepare(raw, (4, 4, 3))
    np.testing.assert_array_equal(ready, raw[3:7, 2:6])


def test_mean_and_std_apply_to_each_channel_and_the_result_has_the_models_layout() -> None:
    raw = image(6, 6)
    ready = Preprocess(layout="nhwc", mean=(1, 2, 3), std=(10, 20, 40)).prepare(raw, (3, 6, 6))
    expected = np.stack([(raw[..., c] - float(c + 1)) / (10 * 2**c) for c in range(3)])
    np.testing.assert_allclose(ready, expected, rtol=1e-6)
    assert ready.dtype == np.float32


def test_raw_data_may_be_channels_first() -> None:
    raw = image(6, 5).transpose(2, 0, 1)
    ready = Preprocess(layout="nchw").prepare(raw, (6, 5, 3))
    np.testing.assert_array_equal(ready, raw.transpose(1, 2, 0))


def test_float_images_are_resized_without_rounding() -> None:
    raw = np.linspace(0, 1, 8 * 8, dtype=np.float64).reshape(8, 8, 1)
    ready = Preprocess(resize=4).prepare(raw, (4, 4, 1))
    expected = np.asarray(Image.fromarray(raw[..., 0].astype(np.float32)).resize((4, 4), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(ready[..., 0], expected)


@pytest.mark.parametrize(
    ("dims", "axis"), [((3, 8, 8), 0), ((8, 8, 4), -1), ((3, None, "w"), 0), ((3, 8, 3), None), ((8, 8, 8), None)]
)
def test_the_channel_axis_is_the_only_end_of_1_3_or_4(dims: tuple[int | str | None, ...], axis: int | None) -> None:
    assert channel_axis(dims) == axis


def test_the_models_layout_is_told_by_the_number_of_channels_that_the_image_has() -> None:
    raw = image(4, 4)
    np.testing.assert_array_equal(Preprocess(layout="nhwc").prepare(raw, (3, 4, 4)), raw.transpose(2, 0, 1))


def test_an_ambiguous_layout_is_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"raw data \(3x5x3\).*data\.preprocess\.layout"):
        Preprocess().prepare(image(3, 5), (3, 3, 5))
    with pytest.raises(InputError, match=r"model's input \(\?x\?x\?\)"):
        Preprocess(layout="nhwc").prepare(image(8, 8), (None, None, None))


def test_a_crop_larger_than_the_image_is_refused() -> None:
    with pytest.raises(InputError, match="9 is larger than an image of 8x10"):
        Preprocess(layout="nhwc", crop=9).prepare(image(8, 10), (3, 9, 9))


def test_means_that_fit_no_channel_are_refused() -> None:
    with pytest.raises(InputError, match=r"data\.preprocess\.mean: found 2 values.*3 channels"):
        Preprocess(layout="nhwc", mean=(1, 2)).prepare(image(8, 8), (3, 8, 8))


@pytest.mark.parametrize("bad", [{"std": [0]}, {"mean": [float("nan")]}, {"resize": 0}, {"crp": 3}, {"layout": "hwc"}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Preprocess.model_validate(bad)
