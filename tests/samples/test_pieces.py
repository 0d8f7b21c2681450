from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples import Preprocess, Samples, observed_shapes, read

X = [Tensor("x", "float32", ("n", 3, "h", "w"))]
AT = {"x": (1, 3, 8, 8)}
SIZES = ((8, 8), (12, 10), (8, 8), (5, 20))


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def blob(**arrays: Array) -> bytes:
    out = io.BytesIO()
    if list(arrays) == ["npy"]:
        np.save(out, arrays["npy"])
    else:
        np.savez(out, **arrays)
    return out.getvalue()


def store(folder: Path, files: dict[str, bytes], kind: str = "folder") -> Path:
    if kind == "zip":
        with zipfile.ZipFile(folder / "s.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return folder / "s.zip"
    for name, content in files.items():
        path = folder / "s" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "s"


def varied() -> list[Array]:
    return [floats(3, *size, seed=i) for i, size in enumerate(SIZES)]


GOOD = blob(npy=floats(3, 8, 8))
GOOD_FEED = blob(x=floats(3, 8, 8))


def feeds(samples: Samples) -> list[Array]:
    return [each["x"] for each in samples]


@pytest.mark.parametrize("kind", ["folder", "zip"])
@pytest.mark.parametrize("form", ["npy", "npz"])
def test_each_file_is_a_sample_with_a_shape_of_its_own(tmp_path: Path, kind: str, form: str) -> None:
    arrays = varied()
    key = "npy" if form == "npy" else "x"
    path = store(tmp_path, {f"{i}.{form}": blob(**{key: array}) for i, array in enumerate(arrays)}, kind)
    samples = read(path, X, AT)
    samples.check()
    assert samples.vary
    assert samples.per_feed == 1
    for found, array in zip(feeds(samples), arrays, strict=True):
        np.testing.assert_array_equal(found, array[None])
    assert observed_shapes(path, X) == {"x": (3, (8, 12), (8, 10))}


def test_those_of_one_shape_can_be_had_in_batches(tmp_path: Path) -> None:
    arrays = varied()
    samples = read(store(tmp_path, {f"{i}.npy": blob(npy=array) for i, array in enumerate(arrays)}), X, AT)
    same = samples.at({"x": (2, 3, 8, 8)})
    assert same is not None
    assert (same.indices, same.vary, same.per_feed) == ((0, 2), False, 2)
    np.testing.assert_array_equal(feeds(same), [np.stack([arrays[0], arrays[2]])])
    assert samples.at({"x": (1, 3, 9, 9)}) is None
    assert same.at({"x": (1, 3, 9, 9)}) is same, "what does not vary is given as it is"


def test_files_of_one_shape_are_grouped_as_the_rows_of_an_array_are(tmp_path: Path) -> None:
    arrays = [floats(3, 8, 8, seed=i) for i in range(4)]
    samples = read(store(tmp_path, {f"{i}.npy": blob(npy=a) for i, a in enumerate(arrays)}), X, {"x": (2, 3, 8, 8)})
    assert not samples.vary
    np.testing.assert_array_equal(feeds(samples), np.stack(arrays).reshape(2, 2, 3, 8, 8))


def test_a_file_may_hold_the_batch_axis_of_a_feed(tmp_path: Path) -> None:
    arrays = [array[None] for array in varied()]
    samples = read(store(tmp_path, {f"{i}.npy": blob(npy=array) for i, array in enumerate(arrays)}), X, AT)
    for found, array in zip(feeds(samples), arrays, strict=True):
        np.testing.assert_array_equal(found, array)
    same = samples.at(AT)
    assert same is not None
    assert same.indices == (0, 2)


def test_images_of_any_size_vary_unless_they_are_cut_to_one(tmp_path: Path) -> None:
    raw = {f"{i}.npy": blob(npy=np.full((*size, 3), i, np.uint8)) for i, size in enumerate(SIZES)}
    path = store(tmp_path, raw)
    cut = read(path, X, {"x": (1, 3, 5, 5)}, Preprocess(layout="nhwc", crop=5))
    assert not cut.vary
    assert [found[0, 0, 0, 0] for found in feeds(cut)] == [0, 1, 2, 3]
    whole = read(path, X, AT, Preprocess(layout="nhwc", mean=(1,)))
    assert [found.shape for found in feeds(whole)] == [(1, 3, *size) for size in SIZES]
    assert observed_shapes(path, X, Preprocess(layout="nhwc", crop=5)) == {"x": (3, 5, 5)}


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_folders_or_a_table_label_files_of_arrays(tmp_path: Path, kind: str) -> None:
    files = {f"{name}/{i}.npy": blob(npy=floats(3, 8, 8, seed=i)) for i, name in enumerate(["cat", "cow", "cat"])}
    by_folder = read(store(tmp_path, files, kind), X, AT)
    assert by_folder.labels().tolist() == [0, 0, 1]  # sorted by name: cat/0, cat/2, cow/1
    table = b"file,label\n2.npy,7\n0.npy,9\n1.npy,8\n"
    (tmp_path / "b").mkdir()
    by_table = read(store(tmp_path / "b", {**files, "labels.csv": table}, kind), X, AT)
    assert by_table.labels().tolist() == [9, 7, 8]


def test_feeds_carry_their_labels_and_several_inputs(tmp_path: Path) -> None:
    tensors = [Tensor("ids", "int64", ("n", "s")), Tensor("mask", "float32", ("n", "s"))]
    arrays = [
        {"ids": np.arange(n), "mask": np.ones(n, np.float32), "label": np.int64(n), "more": np.zeros(2)} for n in (3, 5)
    ]
    path = store(tmp_path, {f"{i}.npz": blob(**each) for i, each in enumerate(arrays)})
    samples = read(path, tensors, {"ids": (1, 3), "mask": (1, 3)})
    samples.check()
    assert [each["ids"].tolist() for each in samples] == [[[0, 1, 2]], [[0, 1, 2, 3, 4]]]
    assert [each["mask"].shape for each in samples] == [(1, 3), (1, 5)]
    assert samples.labels().tolist() == [3, 5]
    assert samples.notes == ("ignored array 'more'",)


def test_inputs_that_share_a_symbol_must_agree_in_every_sample(tmp_path: Path) -> None:
    tensors = [Tensor("ids", "int64", ("n", "s")), Tensor("mask", "int64", ("n", "s"))]
    arrays = [{"ids": np.arange(n), "mask": np.arange(m)} for n, m in ((3, 3), (5, 5), (4, 6))]
    path = store(tmp_path, {f"{i}.npz": blob(**each) for i, each in enumerate(arrays)})
    with pytest.raises(InputError, match=r"2\.npz: the dimension 's' is 4 in 'ids' and 6 in 'mask'"):
        read(path, tensors, {"ids": (1, 3), "mask": (1, 3)}).check()


def test_files_named_after_the_inputs_hold_all_samples(tmp_path: Path) -> None:
    tensors = [Tensor("a", "float32", ("n", 4)), Tensor("b", "int64", ("n",))]
    a, b = floats(5, 4), np.arange(5)
    for kind in ("folder", "zip"):
        path = store(tmp_path, {"d/a.npy": blob(npy=a), "d/b.npy": blob(npy=b), "d/label.npy": blob(npy=b * 2)}, kind)
        samples = read(path, tensors, {"a": (5, 4), "b": (5,)})
        (only,) = samples
        np.testing.assert_array_equal(only["a"], a)
        np.testing.assert_array_equal(only["b"], b)
        assert samples.labels().tolist() == [0, 2, 4, 6, 8]


def test_an_array_beside_labels_is_the_only_input_whatever_its_name(tmp_path: Path) -> None:
    x = floats(4, 3, 8, 8)
    path = store(tmp_path, {"images.npy": blob(npy=x), "labels.npy": blob(npy=np.arange(4))})
    samples = read(path, X, AT)
    np.testing.assert_array_equal(np.concatenate(feeds(samples)), x)
    assert samples.labels().tolist() == [0, 1, 2, 3]


def test_a_single_array_is_streamed_from_its_own_file(tmp_path: Path) -> None:
    x = floats(6, 3, 8, 8)
    np.save(tmp_path / "clips.npy", x)
    samples = read(tmp_path / "clips.npy", X, AT).take(3, seed=0)
    np.testing.assert_array_equal(np.concatenate(feeds(samples)), x[list(samples.indices)])
    assert samples.notes == ("array 'clips' used for input 'x'",)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"0.npy": GOOD, "1.npy": blob(npy=floats(4, 8, 8))}, r"1\.npy: .*shape 4x8x8, expected 3xhxw"),
        ({"0.npy": GOOD, "1.npy": blob(npy=floats(8, 8))}, r"1\.npy: found 2 axes, expected 3 as"),
        ({"0.npy": GOOD, "1.npy": blob(npy=np.zeros((3, 8, 8)))}, r"1\.npy: array of float64"),
        ({"0.npy": GOOD, "1.npy": blob(npy=floats(3, 8, 8))[:-4]}, r"1\.npy has \d+ bytes"),
        ({"0.npy": blob(npy=np.array([{}]))}, r"0\.npy holds Python objects"),
        ({"0.npy": b"junk"}, r"0\.npy is not in \.npy format"),
        ({"0.npz": GOOD_FEED, "1.npz": blob(y=floats(3, 8, 8))}, r"1\.npz: no array 'x', which 0\.npz has"),
        ({"0.npz": GOOD_FEED, "1.npz": b"PK"}, r"1\.npz: expected a whole zip"),
        ({"0.npz": GOOD_FEED, "1.npy": blob(npy=floats(3, 8, 8))}, r"holds \.npy and \.npz"),
        ({"a.wav": b"RIFF"}, r"sound files such as a\.wav, which are not decoded; save each waveform"),
        ({"a.txt": b"", ".hidden.npy": b""}, "holds no image and no array"),
        ({"0.npy": GOOD, "1.npy": blob(npy=np.full((3, 8, 8), np.nan, np.float32))}, r"1 of 2 .*1\.npy"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_files_that_cannot_serve_are_named(tmp_path: Path, files: dict[str, bytes], message: str, kind: str) -> None:
    with pytest.raises(InputError, match=message):
        read(store(tmp_path, files, kind), X, AT).check()


def test_a_fixed_batch_takes_no_samples_of_different_shapes(tmp_path: Path) -> None:
    path = store(tmp_path, {f"{i}.npy": blob(npy=array) for i, array in enumerate(varied())})
    with pytest.raises(InputError, match="input 'x' takes 4 at once"):
        read(path, [Tensor("x", "float32", (4, 3, "h", "w"))], {"x": (4, 3, 8, 8)})


def test_a_header_that_claims_the_sky_allocates_nothing(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**60,)})
    for name in ("x.npy", "0.npy"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(header.getvalue())
        for path in (folder, folder / name):
            with pytest.raises(InputError, match=r"has 128 bytes, expected 46116860184273880\d\d"):
                read(path, [Tensor("x", "float32", ("n",))], {"x": (1,)})


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**30,)})
    with zipfile.ZipFile(tmp_path / "s.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.npy", header.getvalue())
        archive.getinfo("0.npy").file_size = 128 + 2**32  # the directory says what the header says
    with pytest.raises(InputError, match=r"0\.npy: one sample would take 4\.\d+ GB, expected at most"):
        read(tmp_path / "s.zip", [Tensor("x", "float32", ("n", "t"))], {"x": (1, 2**30)}).check()


def test_names_in_a_zip_lead_nowhere(tmp_path: Path) -> None:
    np.save(tmp_path / "outside.npy", floats(3, 8, 8))
    names = [str(tmp_path / "outside.npy"), "../outside.npy"]
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        for seed, name in enumerate(names, 1):
            archive.writestr(name, blob(npy=floats(3, 8, 8, seed=seed)))
    (only,) = read(tmp_path / "s.zip", X, AT)
    np.testing.assert_array_equal(only["x"][0], floats(3, 8, 8, seed=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside.npy", "s.zip"]


@pytest.mark.parametrize(
    ("found", "dims", "said"),
    [
        ((32, 32, 3), (3, 32, 32), r"layout: nhwc\}.*numpy\.transpose\(array, \(0, 3, 1, 2\)\)"),
        ((3, 32, 32), (32, 32, 3), r"layout: nchw\}.*numpy\.transpose\(array, \(0, 2, 3, 1\)\)"),
        ((24, 32, 3), (3, "h", "w"), r"layout: nhwc\}"),
        ((64, 10), (10, 64), r"transposed: save numpy\.transpose\(array, \(0, 2, 1\)\)"),
        ((64, 11), (10, 64), "if they are images in another size or layout"),
    ],
)
def test_transposed_samples_are_told_from_others(
    tmp_path: Path, found: tuple[int, ...], dims: tuple[int | str, ...], said: str
) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((2, *found), np.float32))
    wanted = tuple(dim if isinstance(dim, int) else found[axis] for axis, dim in enumerate(dims))
    with pytest.raises(InputError, match=said):
        read(tmp_path / "d.npz", [Tensor("x", "float32", ("n", *dims))], {"x": (1, *wanted)})
