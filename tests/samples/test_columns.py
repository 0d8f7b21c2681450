from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples import Samples, read
from compressor.score import choose

FLAT = [Tensor("x", "float32", ("n", 3))]
AT = {"x": (1, 3)}


def csv(folder: Path, text: str) -> Path:
    (folder / "t.csv").write_text(text, encoding="utf-8")
    return folder / "t.csv"


def parquet(folder: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return folder / "t.parquet"


def rows(samples: Samples, name: str = "x") -> Array:
    return np.concatenate([feeds[name] for feeds in samples])


@pytest.mark.parametrize("name", ["Label", "LABELS", "Target", "Class"])
@pytest.mark.parametrize("width", [2, None])
def test_names_of_labels_are_known_in_any_case(tmp_path: Path, name: str, width: int | None) -> None:
    path = csv(tmp_path, f"{name},a,b\n1,2,3\n0,5,6\n")
    samples = read(path, [Tensor("x", "float32", ("n", width))], {"x": (1, 2)})
    assert rows(samples).tolist() == [[2, 3], [5, 6]]
    assert samples.labels().tolist() == [1, 0]


def test_an_input_called_as_labels_are_is_no_column_of_labels(tmp_path: Path) -> None:
    tensors = [Tensor("Label", "float32", ("n",)), Tensor("x", "float32", ("n", 2))]
    samples = read(csv(tmp_path, "Label,a,b\n1,2,3\n0,5,6\n"), tensors, {"Label": (1,), "x": (1, 2)})
    assert rows(samples, "Label").tolist() == [1, 0]
    assert samples.labels() is None


@pytest.mark.parametrize("names", ["x_02,x_10,x_1", "x.2,x.10,x.1", "x2,x10,x1"])
def test_columns_with_the_numbers_of_an_input_come_in_their_order(tmp_path: Path, names: str) -> None:
    path = csv(tmp_path, f"{names},x_label\n".replace("10", "0") + "2,0,1,7\n5,3,4,8\n")
    assert rows(read(path, FLAT, AT)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_columns_with_other_numbers_are_taken_as_they_come_and_said(tmp_path: Path) -> None:
    samples = read(csv(tmp_path, "f0,f10,f2\n1,2,3\n4,5,6\n"), FLAT, AT)
    assert rows(samples).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert "input 'x' takes 'f0', 'f10', 'f2' in the order of the file, not in that of their numbers" in samples.notes


@pytest.mark.parametrize(
    ("header", "advice"),
    [
        ("x_0,x_2", "number 1 is missing"),
        ("a,b,c,d", "call that of the labels 'label'"),
        ("a,b,c,d,label", "leave out what serves no input"),
    ],
)
def test_advice_on_a_wrong_number_of_columns_can_be_followed(tmp_path: Path, header: str, advice: str) -> None:
    values = ",".join("1" for _ in header.split(","))
    with pytest.raises(InputError, match=advice):
        read(csv(tmp_path, f"{header}\n{values}\n{values}\n"), FLAT, AT)


@pytest.mark.parametrize("name", ["id", "Index", "IDX"])
@pytest.mark.parametrize(("width", "taken"), [(2, False), (None, False), (3, True)])
def test_a_column_of_ids_is_a_feature_only_where_so_many_are_taken(
    tmp_path: Path, name: str, width: int | None, *, taken: bool
) -> None:
    path = csv(tmp_path, f"{name},a,b,label\n9,2,3,1\n7,5,6,0\n")
    samples = read(path, [Tensor("x", "float32", ("n", width))], {"x": (1, width or 2)})
    assert rows(samples).tolist() == ([[9, 2, 3], [7, 5, 6]] if taken else [[2, 3], [5, 6]])
    assert samples.notes == ((f"column {name!r} used for input 'x'",) if taken else (f"ignored column {name!r}",))
    assert samples.labels().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "column", "is_label"),
    [
        ("id", [5, 9, 9], False),
        ("k", [0, 1, 2], False),
        ("k", [3, 1, 2], False),
        ("k", [1, 1, 2], True),
        ("k", [2, 3, 4], True),
        ("label", [0, 1, 2], True),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_numbers_of_the_rows_are_no_labels_unless_they_are_called_so(
    tmp_path: Path, name: str, column: list[int], kind: str, *, is_label: bool
) -> None:
    values = {"a": [1.0, 2.0, 3.0], name: column}
    text = f"a,{name}\n" + "".join(f"{a},{k}\n" for a, k in zip(*values.values(), strict=True))
    path = csv(tmp_path, text) if kind == "csv" else parquet(tmp_path, **values)
    samples = read(path, [Tensor("a", "float64", ("n",))], {"a": (1,)})
    labels = samples.labels()
    assert (labels is not None) == is_label
    if labels is None:
        told = f"column {name!r} numbers the rows, and is not used as labels"
        assert samples.notes == (told, f"ignored column {name!r}")
    else:
        assert labels.tolist() == column


@pytest.mark.parametrize(
    ("column", "kind", "found"),
    [
        (["0", "2", "1"], "i", [0, 2, 1]),
        (["0", "2", "1.5"], "f", [0, 2, 1.5]),
        (["0.000e+00", "2.0", "1e0"], "i", [0, 2, 1]),
        (["1e300", "2.0", "1.0"], "f", [1e300, 2, 1]),
        (["cat", "7", "dog"], "U", ["cat", "7", "dog"]),
        (["", "", ""], None, None),
    ],
)
def test_labels_are_whole_numbers_numbers_or_text(
    tmp_path: Path, column: list[str], kind: str | None, found: list[object] | None
) -> None:
    text = "a,b,c,label\n" + "".join(f"{i},2,3,{cell}\n" for i, cell in enumerate(column))
    labels = read(csv(tmp_path, text), FLAT, AT).labels()
    assert (labels is None) == (kind is None)
    if labels is not None:
        assert (labels.dtype.kind, labels.tolist()) == (kind, found)


@pytest.mark.parametrize(("values", "kind"), [([2.0, 1.0], "i"), ([2.0, 1.5], "f"), ([[1.0], [2.0]], "f")])
def test_labels_of_a_parquet_table_are_whole_numbers_where_all_are(
    tmp_path: Path, values: list[object], kind: str
) -> None:
    path = parquet(tmp_path, a=[1.0, 2.0], b=[1.0, 2.0], c=[3.0, 4.0], label=values)
    labels = read(path, FLAT, AT).labels()
    assert (labels.dtype.kind, labels.tolist()) == (kind, values)


def test_what_numpy_writes_is_scored_by_its_classes(tmp_path: Path) -> None:
    classes = np.array([0, 1, 2, 0, 1, 2])
    values = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    path = tmp_path / "t.csv"
    np.savetxt(path, np.c_[values, classes], delimiter=",", header="a,b,c,label", comments="")
    samples = read(path, FLAT, AT)
    np.testing.assert_array_equal(rows(samples), values)
    assert choose({"y": np.zeros((1, 3), np.float32)}, samples.labels(), None) == "top1"
