import csv
import re
import struct
import zipfile
import zlib
from io import BytesIO
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from PIL import Image

from compressor.errors import InputError
from compressor.records import Tensor
from compressor.samples import Preprocess, Samples, observed_shapes, read

X = Tensor("x", "float32", ("batch", 3, 8, 8))
ONE = {"x": (1, 3, 8, 8)}
RAW = Preprocess(mean=(0,))


def png(level: int, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> bytes:
    data = BytesIO()
    Image.new(mode, size, level if mode == "L" else (level, 2 * level, 0)).save(data, "png")
    return data.getvalue()


def folder(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def levels(samples: Samples) -> list[int]:
    return [int(feeds["x"][0, 0, 0, 0]) for feeds in samples]


def test_a_folder_and_a_zip_of_images_give_the_same_feeds(tmp_path: Path) -> None:
    files = {"b.png": png(2), "a.png": png(1), "notes.txt": b"", ".hidden.png": b""}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    for path in (folder(tmp_path / "all", files), tmp_path / "all.zip"):
        samples = read(path, [X], ONE, RAW)
        assert levels(samples) == [1, 2]
        assert next(iter(samples))["x"][0, :, 0, 0].tolist() == [1, 2, 0]
        assert samples.labels() is None
        assert samples.check() is None


def test_a_table_labels_the_images_it_names(tmp_path: Path) -> None:
    table = b"\xef\xbb\xbflabel,File\n7,b.png\n3,a.png\n5,unused.png\n"
    samples = read(folder(tmp_path, {"a.png": png(1), "b.png": png(2), "labels.csv": table}), [X], ONE, RAW)
    assert samples.labels().tolist() == [3, 7]
    assert samples.take(1, seed=0).labels().tolist() == [[3, 7][samples.take(1, seed=0).indices[0]]]


def test_a_table_may_hold_the_texts_that_images_show(tmp_path: Path) -> None:
    table = "file,text\nb.png,naïve\na.png,7\n".encode()
    samples = read(folder(tmp_path, {"a.png": png(1), "b.png": png(2), "labels.csv": table}), [X], ONE, RAW)
    assert samples.labels().tolist() == ["7", "naïve"]
    assert "column 'text'" in samples.notes[0]


def test_rows_whose_file_names_differ_are_matched_by_a_word_that_is_theirs_alone(tmp_path: Path) -> None:
    table = b"index,synset,file\n0,n77,images/n77_fish.JPEG\n1,n33,images/n33_bird.JPEG\n"
    samples = read(
        folder(tmp_path, {"0000_n77.png": png(1), "0001_n33.png": png(2), "labels.csv": table}), [X], ONE, RAW
    )
    assert samples.labels().tolist() == [0, 1]
    assert "in 'index' and 'synset'" in samples.notes[0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"index,synset\n1,n77\n0,n33\n", "match the files differently"),
        (b"label,file\n1,other.png\n0,0000_n77.png\n", "in no way one to one"),
        (b"label,file\n1,0000_n77.png\n", "in no way one to one"),
        (b"label,file\nfish,0000_n77.png\nbird,0001_n33.png\n", "expected a column of numbers"),
        (b"label,file\n1\n", "rows of equal length"),
        (b"\xff\xfe", "in UTF-8"),
        (b"", "with a header"),
    ],
)
def test_tables_that_do_not_label_every_image_are_refused(tmp_path: Path, table: bytes, message: str) -> None:
    path = folder(tmp_path, {"0000_n77.png": png(1), "0001_n33.png": png(2), "labels.csv": table})
    with pytest.raises(InputError, match=rf"labels\.csv.*{message}"):
        read(path, [X], ONE, RAW)


def test_folders_are_classes_in_sorted_order(tmp_path: Path) -> None:
    path = folder(tmp_path, {"dog/1.png": png(1), "cat/2.png": png(2), "cat/1.png": png(3)})
    samples = read(path, [X], ONE, RAW)
    assert levels(samples) == [3, 2, 1]
    assert samples.labels().tolist() == [0, 0, 1]
    assert samples.notes == ("labels 0 to 1 from the folders 'cat' to 'dog', sorted",)


def test_images_outside_any_folder_make_folders_no_classes(tmp_path: Path) -> None:
    path = folder(tmp_path, {"dog/1.png": png(1), "cat/2.png": png(2), "3.png": png(3)})
    assert read(path, [X], ONE, RAW).labels() is None


def test_the_layout_of_files_is_known_even_where_their_sizes_do_not_tell(tmp_path: Path) -> None:
    path = folder(tmp_path, {"1.png": png(5, (4, 4))})
    samples = read(path, [Tensor("x", "float32", (1, 3, 4, 4))], {"x": (1, 3, 4, 4)}, RAW)
    assert next(iter(samples))["x"][0, :, 0, 0].tolist() == [5, 10, 0]


def test_one_folder_is_no_class(tmp_path: Path) -> None:
    samples = read(folder(tmp_path, {"images/1.png": png(1), "images/2.png": png(2)}), [X], ONE, RAW)
    assert samples.labels() is None


def test_a_model_with_one_channel_gets_grey_images(tmp_path: Path) -> None:
    grey = Tensor("x", "float32", ("batch", 1, 8, 8))
    samples = read(folder(tmp_path, {"1.png": png(9, mode="L")}), [grey], {"x": (1, 1, 8, 8)}, RAW)
    np.testing.assert_array_equal(next(iter(samples))["x"], np.full((1, 1, 8, 8), 9))


def test_images_of_other_sizes_are_refused_by_name_unless_resized(tmp_path: Path) -> None:
    path = folder(tmp_path, {"1.png": png(1), "2.png": png(2, (9, 8))})
    with pytest.raises(InputError, match=r"2\.png: .*3x8x9, expected 3x8x8"):
        list(read(path, [X], ONE, RAW))
    assert levels(read(path, [X], ONE, Preprocess(resize=8, crop=8))) == [1, 2]
    assert observed_shapes(path, [Tensor("x", "float32", (1, 3, None, None))], RAW) == {"x": (3, 8, 8)}


def test_unusable_images_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, {"1.png": png(1), "2.png": png(200, (8, 8))[:45]})
    with pytest.raises(InputError, match=r"2\.png: expected an image"):
        list(read(path, [X], ONE, RAW))
    with pytest.raises(InputError, match=r"uint8, but input 'x' is float32; scale it"):
        read(path, [Tensor("x", "float32", ("batch", 8, 8, 3))], {"x": (1, 8, 8, 3)})
    with pytest.raises(InputError, match="images serve one input"):
        read(path, [X, Tensor("y", "float32", (1,))], ONE, RAW)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no image"):
        read(tmp_path / "none", [X], ONE, RAW)


@pytest.mark.parametrize(("mode", "suffix"), [("I;16", "png"), ("I", "tiff"), ("F", "tiff")])
def test_images_of_more_than_8_bits_a_channel_are_refused_and_not_clipped(
    tmp_path: Path, mode: str, suffix: str
) -> None:
    Image.new(mode, (8, 8), 300).save(tmp_path / "deep", suffix)
    path = folder(tmp_path / "all", {"1.png": png(1), "2.png": (tmp_path / "deep").read_bytes()})
    with pytest.raises(InputError, match=rf"2\.png: expected 8 bits a channel, found mode {mode}"):
        list(read(path, [X], ONE, RAW))


def test_damage_that_pillow_reports_as_a_value_error_is_refused_too(tmp_path: Path) -> None:
    header = b"IHDR" + bytes(5)  # 13 bytes are needed
    short = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 5) + header + struct.pack(">I", zlib.crc32(header))
    with pytest.raises(ValueError, match="Truncated IHDR"):
        Image.open(BytesIO(short))
    path = folder(tmp_path, {"1.png": png(1), "2.png": short})
    with pytest.raises(InputError, match=r"2\.png: expected an image, found a damaged"):
        list(read(path, [X], ONE, RAW))


def test_the_hash_of_a_folder_changes_with_a_byte_and_with_a_name(tmp_path: Path) -> None:
    hashes = {
        read(folder(tmp_path / name, files), [X], ONE, RAW).source.sha256
        for name, files in {"a": {"1.png": png(1)}, "b": {"1.png": png(2)}, "c": {"2.png": png(1)}}.items()
    }
    again = read(folder(tmp_path / "d", {"1.png": png(1)}), [X], ONE, RAW).source.sha256
    assert len(hashes) == 3
    assert again in hashes


@pytest.mark.shared
def test_every_imagenet_file_gets_the_index_of_the_synset_in_its_name(shared: Path) -> None:
    path = shared / "data/imagenet1000_256.zip"
    with zipfile.ZipFile(path) as archive:
        rows = csv.DictReader(archive.read("labels.csv").decode().splitlines())
        index = {row["synset"]: int(row["index"]) for row in rows}
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
    tensor = Tensor("input", "float32", ("batch", 3, 224, 224))
    samples = read(path, [tensor], {"input": (1, 3, 224, 224)}, Preprocess(resize=256, crop=224))
    synsets = [re.findall(r"n\d{8}", PurePosixPath(name).stem)[0] for name in names]
    assert samples.labels().tolist() == [index[synset] for synset in synsets]
    assert next(iter(samples.take(1, seed=0)))["input"].shape == (1, 3, 224, 224)
