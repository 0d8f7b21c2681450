import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples import Preprocess, observed_shapes, read, synthetic

X = Tensor("x", "float32", ("batch", 3, 4, 4))
ONE = {"x": (1, 3, 4, 4)}


def write(folder: Path, name: str = "data.npz", **arrays: Array) -> Path:
    path = folder / name
    np.savez(path, **arrays)
    return path


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_feed_has_the_static_shape_and_the_files_values(tmp_path: Path) -> None:
    x = floats(5, 3, 4, 4)
    samples = read(write(tmp_path, x=x), [X], ONE)
    for _ in range(2):  # re-iterable
        np.testing.assert_array_equal(np.concatenate([feeds["x"] for feeds in samples]), x)
    assert len(samples) == 5


def test_a_batch_groups_samples_and_repeats_the_last_to_fill_up(tmp_path: Path) -> None:
    x = floats(5, 3, 4, 4)
    first, last = read(write(tmp_path, x=x), [X], {"x": (3, 3, 4, 4)})
    np.testing.assert_array_equal(first["x"], x[:3])
    np.testing.assert_array_equal(last["x"], x[[3, 4, 4]])


def test_several_inputs_stream_in_step(tmp_path: Path) -> None:
    ids, mask = np.arange(12, dtype=np.int32).reshape(4, 3), np.eye(4, 3, dtype=bool)
    tensors = [Tensor("ids", "int64", ("b", "s")), Tensor("mask", "bool", ("b", "s"))]
    samples = read(write(tmp_path, mask=mask, ids=ids), tensors, {"ids": (1, 3), "mask": (1, 3)}).take(2, seed=3)
    for index, feeds in zip(samples.indices, samples, strict=True):
        np.testing.assert_array_equal(feeds["ids"], ids[[index]])
        np.testing.assert_array_equal(feeds["mask"], mask[[index]])
        assert feeds["ids"].dtype == np.int64
    assert samples.notes == ("array 'ids': cast int32 to int64",)


def test_an_array_of_one_more_rank_holds_complete_feeds_with_one_label_each(tmp_path: Path) -> None:
    x, rate = floats(3, 2, 64), np.array([8, 16, 8], np.int64)
    tensors = [Tensor("x", "float32", ("batch", "seq")), Tensor("rate", "int64", ())]
    samples = read(write(tmp_path, x=x, rate=rate, label=np.arange(3)), tensors, {"x": (2, 64), "rate": ()})
    feeds = list(samples)
    np.testing.assert_array_equal([feed["x"] for feed in feeds], x)
    assert [feed["rate"].shape for feed in feeds] == [()] * 3
    assert samples.labels().tolist() == [0, 1, 2]
    assert samples.per_feed == 1
    assert observed_shapes(Path(samples.source.source), tensors) == {"x": (2, 64), "rate": ()}


def test_complete_feeds_beside_rows_of_a_batch_are_refused(tmp_path: Path) -> None:
    tensors = [Tensor("x", "float32", ("b", "s")), Tensor("y", "float32", ("b", "s"))]
    path = write(tmp_path, x=floats(4, 2, 3), y=floats(4, 3))
    with pytest.raises(InputError, match=r"'x' takes 1, 'y' takes 2"):
        read(path, tensors, {"x": (2, 3), "y": (2, 3)})


def test_names_decide_and_notes_say_how(tmp_path: Path) -> None:
    path = write(tmp_path, images=floats(2, 3, 4, 4), label=np.array([1, 0]))
    samples = read(path, [X], ONE)
    assert samples.notes == ("array 'images' used for input 'x'",)
    both = write(tmp_path, "both.npz", x=floats(2, 3, 4, 4), label=np.array([1, 0]), label2=np.array([0, 0]))
    assert read(both, [X], ONE).notes == ("ignored array 'label2'",)
    assert read(both, [X], ONE).labels().tolist() == [1, 0]
    other = write(tmp_path, "other.npz", x=floats(2, 3, 4, 4), digit=np.array([1, 0]))
    assert read(other, [X], ONE).notes == ("array 'digit' used as labels",)


@pytest.mark.parametrize("name", ["label", "labels"])
def test_labels_under_their_own_name_are_worth_no_note(tmp_path: Path, name: str) -> None:
    samples = read(write(tmp_path, x=floats(2, 3, 4, 4), **{name: np.array([1, 0])}), [X], ONE)
    assert samples.labels().tolist() == [1, 0]
    assert samples.notes == ()


def test_labels_follow_the_order_of_iteration(tmp_path: Path) -> None:
    x = np.repeat(np.arange(20, dtype=np.float32), 48).reshape(20, 3, 4, 4)
    part = read(write(tmp_path, x=x, label=np.arange(20)), [X], ONE).take(7, seed=1)
    assert part.labels().tolist() == [int(feeds["x"][0, 0, 0, 0]) for feeds in part]


def test_take_and_split_are_seeded_and_disjoint(tmp_path: Path) -> None:
    samples = read(write(tmp_path, x=floats(30, 3, 4, 4)), [X], ONE)
    a, b = samples.split(10, seed=5)
    assert (len(a), len(b), a.source.n) == (10, 20, 10)
    assert sorted([*a.indices, *b.indices]) == list(range(30))
    assert samples.split(10, seed=5)[0] == a
    assert samples.split(10, seed=6)[0] != a
    assert len(samples.take(99, seed=0)) == 30
    assert a.without(b) == a
    assert samples.without(a) == b
    assert len(a.without(samples)) == 0
    with pytest.raises(InputError, match="30 of 30"):
        samples.split(30, seed=0)


def test_samples_are_told_apart_by_values_not_by_files(tmp_path: Path) -> None:
    x = floats(6, 3, 4, 4)
    a = read(write(tmp_path, "a.npz", x=x[:4], label=np.zeros(4, int)), [X], ONE)
    b = read(write(tmp_path, "b.npz", other=x[3:]), [X], ONE)
    assert a.without(b).indices == (0, 1, 2)


def test_a_description_survives_pickling_and_names_its_source(tmp_path: Path) -> None:
    path = write(tmp_path, x=floats(3, 3, 4, 4))
    samples = read(path, [X], ONE)
    again = pickle.loads(pickle.dumps(samples))  # noqa: S301 - our own bytes
    assert again == samples
    assert [f["x"].tobytes() for f in again] == [f["x"].tobytes() for f in samples]
    assert (samples.source.source, samples.source.n, samples.source.synthetic) == (str(path), 3, False)


def test_preprocessing_serves_raw_pixels_to_a_float_model(tmp_path: Path) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), np.uint8)
    samples = read(write(tmp_path, x=raw), [X], ONE, Preprocess(layout="nhwc", mean=(10,), std=(5,)))
    np.testing.assert_allclose(next(iter(samples))["x"][0], (raw[0].transpose(2, 0, 1) - 10.0) / 5, rtol=1e-6)
    assert samples.notes == ()


def test_observed_shapes_leave_the_batch_out_and_follow_the_models_layout(tmp_path: Path) -> None:
    path = write(tmp_path, x=np.zeros((2, 12, 10, 3), np.uint8))
    open_ended = Tensor("x", "float32", ("n", 3, None, None))
    assert observed_shapes(path, [open_ended], Preprocess(layout="nhwc")) == {"x": (3, 12, 10)}
    assert observed_shapes(path, [open_ended], Preprocess(layout="nhwc", crop=8)) == {"x": (3, 8, 8)}
    assert observed_shapes(path, [Tensor("x", "uint8", None)]) == {"x": (12, 10, 3)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 3, 4, 5), np.float32)}, r"samples of shape 3x4x5, expected 3x4x4"),
        ({"x": np.zeros((2, 4), np.float32)}, r"has shape 2x4; expected 4 axes"),
        ({"x": np.zeros((0, 3, 4, 4), np.float32)}, r"'x' holds no samples"),
        ({"x": np.float32(1)}, r"'x' holds a single value"),
        ({"x": np.zeros((2, 3, 4, 4), np.float32), "label": np.zeros(3)}, r"'x' has 2, 'label' has 3"),
        ({"a": np.zeros((2, 3, 4, 4)), "b": np.zeros((2, 3, 4, 4))}, r"no array for input 'x', found 'a', 'b'"),
        ({"x": np.zeros((2, 3, 4, 4), np.uint8)}, r"'x' is uint8, but input 'x' is float32; scale"),
        ({"x": np.zeros((2, 3, 4, 4), np.int64)}, r"'x' is int64, but input 'x' is float32"),
        ({"x": np.asfortranarray(np.zeros((2, 3, 4, 4), np.float32))}, r"Fortran order"),
        ({"x": np.array([{}, {}])}, r"Python objects"),
        ({}, r"holds no arrays"),
    ],
)
def test_data_that_cannot_serve_are_refused_with_file_and_array(
    tmp_path: Path, arrays: dict[str, Array], message: str
) -> None:
    path = write(tmp_path, **arrays)
    with pytest.raises(InputError, match=rf"data\.npz.*{message}"):
        read(path, [X], ONE)


@pytest.mark.parametrize(("found", "wanted"), [("int64", "int32"), ("float32", "int64"), ("int8", "uint8")])
def test_types_that_would_lose_values_are_refused(tmp_path: Path, found: str, wanted: str) -> None:
    path = write(tmp_path, x=np.zeros((2, 3), found))
    with pytest.raises(InputError, match=f"is {found}, but input 'x' is {wanted}"):
        read(path, [Tensor("x", wanted, ("b", 3))], {"x": (1, 3)})


def test_float_widths_are_cast_with_a_note_and_overflow_counts_as_infinite(tmp_path: Path) -> None:
    x = np.zeros((3, 3, 4, 4))
    x[2, 0, 0, 0] = 1e300
    samples = read(write(tmp_path, x=x), [X], ONE)
    assert samples.notes == ("array 'x': cast float64 to float32",)
    with pytest.raises(InputError, match=r"data\.npz: array 'x' .*in 1 of 3 samples, the first at index 2"):
        samples.check()


def test_preprocess_that_applies_to_nothing_or_to_whole_numbers_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, x=floats(2, 7))
    with pytest.raises(InputError, match="no input has samples with three axes"):
        read(path, [Tensor("x", "float32", ("b", 7))], {"x": (1, 7)}, Preprocess(mean=(1,)))
    pixels = write(tmp_path, "p.npz", x=np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(InputError, match="mean and std give fractions"):
        read(pixels, [Tensor("x", "uint8", ("b", 4, 4, 3))], {"x": (1, 4, 4, 3)}, Preprocess(layout="nhwc", mean=(1,)))


def test_samples_that_are_all_identical_are_refused(tmp_path: Path) -> None:
    x = np.ones((4, 3, 4, 4), np.float32)
    same = read(write(tmp_path, x=x, label=np.arange(4)), [X], ONE)
    with pytest.raises(InputError, match=r"data\.npz: no variation, all 4 samples are identical.*give real samples"):
        same.check()
    x[3, 0, 0, 0] = 2
    different = read(write(tmp_path, "b.npz", x=x), [X], ONE)
    assert different.check() is None
    with pytest.raises(InputError, match="all 3 samples are identical"):
        replace(different, indices=range(3)).check()


def test_a_single_sample_needs_no_other(tmp_path: Path) -> None:
    assert read(write(tmp_path, x=np.zeros((1, 3, 4, 4), np.float32)), [X], ONE).check() is None


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_a_file_cut_short_is_refused(tmp_path: Path, keep: float) -> None:
    path = write(tmp_path, x=floats(50, 3, 4, 4))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(InputError, match=r"data\.npz: expected a whole zip file"):
        read(path, [X], ONE)


def test_damage_inside_the_file_is_found_while_reading(tmp_path: Path) -> None:
    path = write(tmp_path, x=floats(50, 3, 4, 4))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        read(path, [X], ONE).check()


def test_an_array_shorter_than_its_header_says_is_refused(tmp_path: Path) -> None:
    whole = BytesIO()
    np.save(whole, floats(5, 3, 4, 4))
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", whole.getvalue()[:-8])
    with pytest.raises(InputError, match=r"data\.npz: array 'x' has 1080 bytes, expected 1088"):
        read(tmp_path / "data.npz", [X], ONE)


def test_an_array_that_ends_before_its_last_sample_is_found_while_reading(tmp_path: Path) -> None:
    whole = BytesIO()
    np.save(whole, floats(5, 3, 4, 4))
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", whole.getvalue()[:-8])
        archive.getinfo("x.npy").file_size += 8  # the directory says that all is there
    samples = read(tmp_path / "data.npz", [X], ONE)
    with pytest.raises(InputError, match=r"data\.npz: array 'x' ends before its sample 4; write it again"):
        samples.check()
    assert len(list(replace(samples, indices=range(4)))) == 4


@pytest.mark.parametrize("name", ["nothing.npz", "data.txt"])
def test_a_path_that_is_no_data_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "data.txt").write_text("x")
    with pytest.raises(InputError, match=rf"{name}: expected a \.csv, \.npy, \.npz or \.parquet file, a folder"):
        read(tmp_path / name, [X], ONE)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_memory_does_not_grow_with_the_number_of_samples(tmp_path: Path, save: Callable[..., None]) -> None:
    x = np.zeros((600, 3, 64, 64), np.float32)  # 29 MB
    x[:, 0, 0, 0] = np.arange(600)
    save(tmp_path / "x.npz", x=x)
    tracemalloc.start()
    samples = read(tmp_path / "x.npz", [Tensor("x", "float32", ("b", 3, 64, 64))], {"x": (1, 3, 64, 64)})
    samples.check()
    total = sum(float(feeds["x"][0, 0, 0, 0]) for feeds in samples.take(300, seed=0))
    samples.digests()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == sum(samples.take(300, seed=0).indices)
    assert peak_bytes < 2 * 2**20


def test_synthetic_samples_fit_dtype_shape_and_limits_and_repeat() -> None:
    tensors = [
        Tensor("f", "float32", ("b", 1000)),
        Tensor("i", "int64", ("b", 500)),
        Tensor("k", "int32", ("b", 500)),
        Tensor("m", "bool", ("b", 500)),
        Tensor("s", "str", ("b", 2)),
    ]
    shapes = {"f": (2, 1000), "i": (2, 500), "k": (2, 500), "m": (2, 500), "s": (2, 2)}
    samples = synthetic(tensors, shapes, 3, seed=7, limits={"i": 9})
    first, second = pickle.loads(pickle.dumps(samples))  # noqa: S301 - our own bytes
    assert {name: (a.dtype.kind, a.shape) for name, a in first.items()} == {
        name: (kind, shapes[name]) for name, kind in zip(shapes, "fiibU", strict=True)
    }
    assert abs(first["f"].mean()) < 0.15
    assert abs(first["f"].std() - 1) < 0.1
    assert set(np.unique(first["i"])) == set(range(9))
    assert set(np.unique(first["k"])) == {0, 1}
    assert first["f"].tobytes() == next(iter(synthetic(tensors, shapes, 3, 7, {"i": 9})))["f"].tobytes()
    assert first["f"].tobytes() != next(iter(synthetic(tensors, shapes, 3, 8, {"i": 9})))["f"].tobytes()
    np.testing.assert_array_equal(second["f"][0], second["f"][1])  # the third sample, repeated
    assert samples.source.synthetic
    assert samples.labels() is None
    assert len(samples.digests()) == 3


def test_synthetic_inputs_without_a_common_batch_are_complete_feeds() -> None:
    tensors = [Tensor("x", "float32", ("b", 4)), Tensor("state", "float32", (2, "b", 4)), Tensor("sr", "int64", ())]
    shapes = {"x": (1, 4), "state": (2, 1, 4), "sr": ()}
    samples = synthetic(tensors, shapes, 2, seed=0, limits={})
    assert [{name: a.shape for name, a in feeds.items()} for feeds in samples] == [shapes] * 2


def test_a_model_without_inputs_gets_empty_feeds_and_needs_no_file(tmp_path: Path) -> None:
    assert list(synthetic([], {}, 2, seed=0, limits={})) == [{}, {}]
    with pytest.raises(InputError, match="the model has no inputs"):
        read(write(tmp_path, x=floats(2, 3)), [], {})


def test_synthetic_values_of_an_unknown_type_are_refused() -> None:
    with pytest.raises(InputError, match="'x' is complex64"):
        synthetic([Tensor("x", "complex64", (1,))], {"x": (1,)}, 1, 0, {})


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("ok", ()),
        ("extra_key", ()),
        ("float64", ("array 'x': cast float64 to float32",)),
    ],
)
def test_usable_calibration_files_say_what_is_odd(shared: Path, name: str, notes: tuple[str, ...]) -> None:
    path = shared / "cases/calibration" / f"{name}.npz"
    samples = read(path, [Tensor("x", "float32", ("n", 3, 8, 8))], {"x": (1, 3, 8, 8)})
    samples.check()
    assert samples.notes == notes


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one_inf", "array 'x' has NaN or infinite values in 1 of 16 samples, the first at index 3"),
        ("all_zero", "no variation, all 16 samples are identical"),
        ("empty", "array 'x' holds no samples"),
        ("no_arrays", "holds no arrays"),
        ("truncated", "damaged"),
        ("uint8", "data.preprocess"),
    ],
)
def test_unusable_calibration_files_are_refused_by_name(shared: Path, name: str, message: str) -> None:
    path = shared / "cases/calibration" / f"{name}.npz"
    with pytest.raises(InputError, match=rf"{name}\.npz.*{message}"):
        read(path, [Tensor("x", "float32", ("n", 3, 8, 8))], {"x": (1, 3, 8, 8)}).check()


@pytest.mark.shared
def test_pixels_of_a_real_set_equal_numpys_reading(shared: Path) -> None:
    path = shared / "data/cifar10_calibration1000.npz"
    with np.load(path) as arrays:
        raw, labels = arrays["input"], arrays["label"]
    tensor = Tensor("input", "float32", ("b", 3, 32, 32))
    part = read(path, [tensor], {"input": (1, 3, 32, 32)}, Preprocess(layout="nhwc")).take(50, seed=2)
    np.testing.assert_array_equal(part.labels(), labels[list(part.indices)])
    for index, feeds in zip(part.indices, part, strict=True):
        np.testing.assert_array_equal(feeds["input"][0], raw[index].transpose(2, 0, 1))
