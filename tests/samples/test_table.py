from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as writer

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples import Samples, observed_shapes, read

FLAT = [Tensor("x", "float32", ("n", 3))]
AT = {"x": (1, 3)}


def csv(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def parquet(folder: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return folder / "t.parquet"


def rows(samples: Samples, name: str = "x") -> Array:
    return np.concatenate([feeds[name] for feeds in samples])


def test_all_columns_of_numbers_make_the_only_input_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = csv(tmp_path, "b,a,c,label\n1,2.5,-3e2,0\n4,5,6,1\n")
    samples = read(path, FLAT, AT)
    samples.check()
    assert rows(samples).tolist() == [[1, 2.5, -300], [4, 5, 6]]
    assert rows(samples).dtype == np.float32
    assert samples.labels().tolist() == [0, 1]
    assert samples.labels().dtype == np.int64
    assert (len(samples), samples.notes) == (2, ())
    assert observed_shapes(path, FLAT) == {"x": (3,)}


def test_only_some_rows_are_given_in_step_with_their_labels(tmp_path: Path) -> None:
    table = "a,b,c,label\n" + "".join(f"{i},{i / 2},{-i},{i % 7}\n" for i in range(500))
    part = read(csv(tmp_path, table), FLAT, AT).take(40, seed=1)
    expected = [[i, i / 2, -i] for i in part.indices]
    assert rows(part).tolist() == expected
    assert part.labels().tolist() == [i % 7 for i in part.indices]


def test_a_spreadsheets_mark_line_ends_and_row_numbers_change_nothing(tmp_path: Path) -> None:
    path = csv(tmp_path, b"\xef\xbb\xbf,a,b,c,target\r\n0,1,2,3,0.5\r\n1,4,5,6,1.5\r\n\r\n")
    samples = read(path, FLAT, AT)
    assert rows(samples).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert samples.labels().tolist() == [0.5, 1.5]
    assert samples.notes == ("column 'target' used as labels", "ignored column ''")


def test_columns_named_after_the_input_serve_it_whatever_lies_between(tmp_path: Path) -> None:
    path = csv(tmp_path, "x_0,id,x_2,x_1,more\n1,100,3,2,7\n4,101,6,5,8\n")
    samples = read(path, FLAT, AT)
    assert rows(samples).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert samples.labels() is None
    assert samples.notes == ("ignored column 'id'", "ignored column 'more'")


def test_several_inputs_take_the_columns_of_their_names(tmp_path: Path) -> None:
    tensors = [
        Tensor("age", "float32", ("n", 1)),
        Tensor("town", "str", ("n", 1)),
        Tensor("rooms", "int64", (None,)),
        Tensor("sold", "bool", ("n",)),
    ]
    shapes = {"age": (1, 1), "town": (1, 1), "rooms": (1,), "sold": (1,)}
    path = csv(tmp_path, 'town,rooms,age,sold,price\n"Ålesund, N",9007199254740993,3.5,true,7\n12,4,5,false,9\n')
    samples = read(path, tensors, shapes)
    samples.check()
    first, second = samples
    assert [first[name].tolist() for name in shapes] == [[[3.5]], [["Ålesund, N"]], [2**53 + 1], [True]]
    assert [second[name].tolist() for name in shapes] == [[[5]], [["12"]], [4], [False]]
    assert samples.labels().tolist() == [7, 9]
    assert samples.notes == ("column 'price' used as labels",)


def test_flat_columns_are_laid_out_as_an_input_of_more_axes(tmp_path: Path) -> None:
    path = csv(tmp_path, "a,b,c,d,e,f\n0,1,2,3,4,5\n6,7,8,9,10,11\n")
    tensor = Tensor("x", "float32", ("n", 1, None, 3))
    assert observed_shapes(path, [tensor]) == {"x": (1, 2, 3)}
    assert rows(read(path, [tensor], {"x": (1, 1, 2, 3)})).tolist() == np.arange(12).reshape(2, 1, 2, 3).tolist()


def test_a_vector_without_a_batch_axis_is_a_row(tmp_path: Path) -> None:
    samples = read(csv(tmp_path, "a,b\n1,2\n3,4\n"), [Tensor("x", "float32", (2,))], {"x": (2,)})
    assert [feeds["x"].tolist() for feeds in samples] == [[1, 2], [3, 4]]


def test_whole_numbers_of_a_parquet_table_are_cast_with_a_note(tmp_path: Path) -> None:
    path = parquet(tmp_path, a=np.array([1, 2], np.int64), b=np.array([3, 4], np.uint8), c=[True, False], label=[1, 0])
    samples = read(path, FLAT, AT)
    assert rows(samples).tolist() == [[1, 3, 1], [2, 4, 0]]
    assert samples.notes == ("columns of input 'x': cast int64 to float32",)
    assert samples.labels().tolist() == [1, 0]


def test_lists_of_a_parquet_table_serve_the_input_of_their_name(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(2, 6)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 6)
    for column in (fixed, list(values)):
        samples = read(
            parquet(tmp_path, x=column, label=["b", "a"]), [Tensor("x", "float32", ("n", 2, 3))], {"x": (1, 2, 3)}
        )
        samples.check()
        np.testing.assert_array_equal(rows(samples), values.reshape(2, 2, 3))
        assert samples.labels().tolist() == ["b", "a"]
        assert samples.notes == ()


def test_bytes_in_lists_are_images_that_must_be_scaled(tmp_path: Path) -> None:
    path = parquet(tmp_path, x=pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(6, np.uint8)), 3))
    with pytest.raises(InputError, match="'x' is uint8, but input 'x' is float32; scale"):
        read(path, FLAT, AT)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\nt\nhello\nbye\n", ["hello", "bye"]),
        ("\r\n \r\nt\r\nhello\r\n", ["hello"]),
        ('"t"\nhello\n\nbye\n', ["hello", "bye"]),
        (",,\nt,k,l\nhello,1,2\n", ["hello"]),
    ],
)
def test_the_line_of_names_is_no_sample_wherever_it_ends(tmp_path: Path, text: str, found: list[str]) -> None:
    samples = read(csv(tmp_path, text), [Tensor("t", "str", ("n",))], {"t": (1,)})
    assert rows(samples, "t").tolist() == found


def test_a_name_over_two_lines_and_white_space_around_names_are_no_data(tmp_path: Path) -> None:
    samples = read(csv(tmp_path, '\n"a\nb", c ,d, label\n1, 2,3,0\n4,5, 6,1\n'), FLAT, AT)
    assert rows(samples).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert samples.labels().tolist() == [0, 1]


def test_lines_are_counted_from_the_top_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 5, column 'b' is empty"):
        read(csv(tmp_path, "\n\na,b,c\n1,2,3\n4,,6\n"), FLAT, AT)


def test_the_same_text_is_the_same_sample_in_another_file(tmp_path: Path) -> None:
    tensor, shapes = Tensor("t", "str", ("n",)), {"t": (1,)}
    one = read(csv(tmp_path, "t\nab\nc\n", "one.csv"), [tensor], shapes)
    two = read(csv(tmp_path, "t\nab\na much longer text\n", "two.csv"), [tensor], shapes)
    assert one.without(two).indices == (1,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\n1,2,3\n1,,3\n", "line 3, column 'b' is empty"),
        ("a,b,c\n1,2,3\n\n1,2,nan\n", "line 4, column 'c' is not finite"),
        ("a,b,c\n1,2,3\n1,2,1e999\n", "line 3, column 'c' is not finite"),
        ("a,b,c\n1,2,3\n1,two,3\n", "line 3, column 'b' holds 'two', expected a number"),
        ('a,b,c\n1,2,3\n"1\n2",5,3\n', r"line 4, column 'a' holds '1\\n2', expected a number"),
        ("a,b,c\n1,2,3\n4,5\n", "line 3 has 2 cells, expected 3 as the first line has"),
        ("a,b,c\n1,2,3,4\n", "line 2 has 4 cells, expected 3"),
        ("a,b,b\n1,2,3\n", "its first line has the name 'b' twice"),
        ("1,2,3\n4,5,6\n", "holds numbers alone, expected the names of columns; write it with a header"),
        ("a;b;c\n1;2;3\n", "is separated by ';', expected commas"),
        ("a\tb\tc\n1\t2\t3\n", r"is separated by '\\t', expected commas"),
        ("", "holds nothing"),
        ("a,b,c\n", "found 0 columns of numbers"),
        (b"a,b,c\n1,2,\xff\n", "expected text in UTF-8"),
        ("a,b,c\n1,2,3\n" + '1,2,"3\n', "line 3 is no CSV"),
        ("a,b\n1,2\n", r"found 2 columns of numbers for input 'x' \('a', 'b'\), expected 3; leave out"),
        ("a,b,c,d\n1,2,3,0\n", r"found 4 columns .* expected 3; call that of the labels 'label'"),
        (
            "a,b,k,l\n1,2,z,w\n",
            r"found 2 columns of numbers for input 'x' \('a', 'b', beside 'k', 'l' of another kind\)",
        ),
    ],
)
def test_tables_that_cannot_serve_are_refused_with_line_and_column(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(InputError, match=rf"t\.csv: .*{message}"):
        read(csv(tmp_path, text), FLAT, AT)


def test_a_message_says_the_file_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(csv(tmp_path, "a,b,c\n1,,3\n"), FLAT, AT)
    assert str(caught.value).count("t.csv") == 1


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            [Tensor("a", "float32", ("n",)), Tensor("z", "float32", ("n", 2)), Tensor("y", "float32", ("n",))],
            "'z', 'y'",
        ),
        ([Tensor("a", "float32", ("n",)), Tensor("t", "float32", ("n",))], "'t' holds text, but input 't' is float32"),
        ([Tensor("x", "float32", ("n", "h", "w"))], "leaves 2 dimensions of a sample open"),
        ([Tensor("a", "int64", ("n",))], "line 2, column 'a' holds 1.5, expected a whole number"),
        ([Tensor("b", "int8", ("n",))], "cannot be read as a table"),
    ],
)
def test_columns_that_do_not_serve_the_inputs_are_refused(tmp_path: Path, tensors: list[Tensor], message: str) -> None:
    path = csv(tmp_path, "a,b,t\n1.5,300,word\n")
    with pytest.raises(InputError, match=rf"t\.csv: .*{message}"):
        read(path, tensors, {})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1.0, None], "b": [1.0, 2.0], "c": [1.0, 2.0]}, "row 1, column 'a' is empty"),
        ({"a": [1.0, 2.0], "b": [1.0, float("inf")], "c": [1.0, 2.0]}, "row 1, column 'b' is not finite"),
        ({"x": [[1.0, 2.0, 3.0], [1.0, 2.0]]}, "row 1, column 'x' holds not 3 values"),
        ({"x": [[1.0, 2.0, 3.0], [1.0, None, 3.0]]}, "row 1, column 'x' has a gap"),
        ({"x": [[1.0, 2.0, 3.0], None]}, "row 1, column 'x' is empty"),
    ],
)
def test_parquet_tables_with_gaps_are_refused_with_row_and_column(
    tmp_path: Path, columns: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=rf"t\.parquet: {message}"):
        read(parquet(tmp_path, **columns), FLAT, AT)


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, x=[[1.0, 2.0, 3.0]] * 100)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"t\.parquet: cannot be read as a table"):
        read(path, FLAT, AT)
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(InputError, match=r"t\.parquet: cannot be read as a table"):
        read(path, FLAT, AT)


def test_names_of_columns_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, abcd=[1.0, 2.0], b=[1.0, 2.0], c=[1.0, 2.0])
    path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xc3d"))
    with pytest.raises(InputError, match=r"t\.parquet: cannot be read as a table"):
        read(path, FLAT, AT)


def test_a_file_that_shrinks_afterwards_is_found_while_reading(tmp_path: Path) -> None:
    samples = read(csv(tmp_path, "a,b,c\n1,2,3\n4,5,6\n"), FLAT, AT)
    csv(tmp_path, "a,b,c\n1,2,3\n")
    with pytest.raises(InputError, match=re.escape("has 1 rows, fewer than when it was looked at")):
        samples.check()


@pytest.mark.parametrize(("kind", "most_bytes"), [("csv", 45e6), ("parquet", 16e6)])
def test_a_large_table_is_never_in_memory_as_a_whole(tmp_path: Path, kind: str, most_bytes: float) -> None:
    n, columns = 100_000, 60
    values = np.arange(n * columns, dtype=np.float64).reshape(n, columns)
    table = pa.table({f"c{i}": values[:, i] for i in range(columns)})
    path = tmp_path / f"t.{kind}"
    if kind == "csv":
        writer.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=4000)
    del table
    before = peak = pa.total_allocated_bytes()
    samples = read(path, [Tensor("x", "float64", ("n", columns))], {"x": (1, columns)})
    assert len(samples) == n
    part = samples.take(100, seed=0)
    for index, feeds in zip(part.indices, part, strict=True):
        peak = max(peak, pa.total_allocated_bytes())
        np.testing.assert_array_equal(feeds["x"][0], values[index])
    assert peak - before < most_bytes < values.nbytes


@pytest.mark.parametrize(("cell", "message"), [("", "line 3, column 'label' is empty"), ("x", "holds 'x', expected")])
def test_a_label_that_is_missing_or_no_number_as_the_others_is_refused(tmp_path: Path, cell: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(csv(tmp_path, f"a,b,c,label\n1,2,3,0\n4,5,6,{cell}\n"), FLAT, AT)


def test_a_type_that_no_table_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.csv: input 'x' is bfloat16, a type that numpy arrays cannot hold"):
        read(csv(tmp_path, "a,b,c\n1,2,3\n"), [Tensor("x", "bfloat16", ("n", 3))], AT)


def test_columns_of_other_kinds_are_left_out(tmp_path: Path) -> None:
    when = pa.array([0, 1], pa.timestamp("s"))
    path = parquet(tmp_path, a=[1.0, 2.0], b=[1.0, 2.0], c=[3.0, 4.0], when=when, deep=[[[1.0]], [[2.0]]])
    samples = read(path, FLAT, AT)
    assert samples.labels() is None
    assert samples.notes[:2] == ("ignored column 'when'", "ignored column 'deep'")
