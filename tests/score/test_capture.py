import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compressor.errors import InputError, RungError
from compressor.records import Array, Feeds, Outputs, Progress, Tensor
from compressor.samples import Samples, read
from compressor.score import Recorded, deterministic, outputs, rows, uneven


class Session:
    """A session that computes its outputs in numpy."""

    def __init__(self, **functions: Callable[[Array], Array]) -> None:
        self.functions = functions

    def __call__(self, feeds: Feeds) -> Outputs:
        return {name: function(feeds["x"]) for name, function in self.functions.items()}

    def close(self) -> None:
        pass


X = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)


def samples(folder: Path, batch: int, x: Array = X) -> Samples:
    np.savez(folder / "x.npz", x=x)
    return read(folder / "x.npz", [Tensor("x", "float32", ("b", 4))], {"x": (batch, 4)})


def record(session: Session, data: Samples, folder: Path) -> tuple[list[Progress], Recorded]:
    work, seen = outputs(session, data, folder), []
    while True:
        try:
            seen.append(next(work))
        except StopIteration as end:
            return seen, pickle.loads(pickle.dumps(end.value))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("batch", [1, 3, 5, 7])
def test_outputs_have_one_row_a_sample_without_padding(tmp_path: Path, batch: int) -> None:
    session = Session(**{"a/b": lambda x: x * 2, "best": lambda x: x.argmax(axis=1)})
    progress, recorded = record(session, samples(tmp_path, batch), tmp_path)
    found = recorded.open()
    np.testing.assert_array_equal(found["a/b"], X * 2)
    np.testing.assert_array_equal(found["best"], X.argmax(axis=1))
    assert found["best"].dtype == np.int64
    assert progress[-1] == Progress("score", 7, 7)
    assert (recorded.n, recorded.left_out) == (7, {})


def test_complete_feeds_keep_their_whole_output_as_a_row(tmp_path: Path) -> None:
    feeds = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    session = Session(y=lambda x: x + 1, mean=lambda x: x.mean())
    _, recorded = record(session, samples(tmp_path, 2, feeds), tmp_path)
    np.testing.assert_array_equal(recorded.open()["y"], feeds + 1)
    np.testing.assert_array_equal(recorded.open()["mean"], feeds.mean(axis=(1, 2)))


def test_outputs_that_cannot_be_scored_are_left_out_with_the_reason(tmp_path: Path) -> None:
    session = Session(
        text=lambda x: np.array(["a"] * len(x)),
        boxes=lambda x: np.zeros((int(abs(x).sum() * 10), 4)),
        y=lambda x: x,
    )
    _, recorded = record(session, samples(tmp_path, 1), tmp_path)
    assert list(recorded.open()) == ["y"]
    np.testing.assert_array_equal(recorded.open()["y"], X)
    assert recorded.left_out == {"text": "it holds no numbers", "boxes": "its shape changes from sample to sample"}


def test_a_batch_whose_outputs_have_no_batch_axis_cannot_be_scored(tmp_path: Path) -> None:
    _, recorded = record(Session(total=lambda x: x.sum()), samples(tmp_path, 2), tmp_path)
    with pytest.raises(InputError, match="'total': its first axis is not the batch"):
        recorded.check()


@pytest.mark.parametrize("batch", [1, 3])
def test_rows_are_the_outputs_of_one_feed_as_they_would_be_recorded(tmp_path: Path, batch: int) -> None:
    session = Session(y=lambda x: x * 2, best=lambda x: x.argmax(axis=1), text=lambda x: np.array(["a"] * len(x)))
    data = samples(tmp_path, batch)
    _, recorded = record(session, data, tmp_path)
    found = rows(session({"x": X[:batch]}), data.per_feed)
    assert found.keys() == recorded.open().keys()
    for name, value in recorded.open().items():
        np.testing.assert_array_equal(found[name], value[:batch])


def test_rows_of_a_single_sample_keep_what_has_no_batch_axis_and_of_more_leave_it_out() -> None:
    found = {"total": np.float32(3), "boxes": np.zeros((5, 4))}
    assert {name: value.shape for name, value in rows(found, 1).items()} == {"total": (1,), "boxes": (1, 5, 4)}
    assert rows(found, 2) == {}


def test_a_session_is_deterministic_if_the_same_feed_gives_the_same_bits() -> None:
    feeds = {"x": np.array([1.0, np.nan])}
    generator = np.random.default_rng(0)
    assert deterministic(Session(y=lambda x: x), feeds)
    assert deterministic(Session(y=lambda x: x.astype(str)), feeds)
    assert not deterministic(Session(y=lambda x: x + 1e-7 * generator.random(2)), feeds)


def test_a_session_that_reuses_its_output_buffer_is_not_taken_as_deterministic() -> None:
    buffer, generator = np.zeros(2), np.random.default_rng(0)

    def noise(_: Array) -> Array:
        buffer[:] = generator.random(2)
        return buffer

    assert not deterministic(Session(y=noise), {"x": np.zeros(2)})


LENGTHS = (3, 1, 5)


def unlike(folder: Path) -> Samples:
    (folder / "d").mkdir()
    for i, length in enumerate(LENGTHS):
        np.save(folder / "d" / f"{i}.npy", np.full(length, i + 1, np.float32))
    return read(folder / "d", [Tensor("x", "float32", ("b", "t"))], {"x": (1, 3)})


def test_outputs_of_samples_of_different_shapes_are_filled_up_with_zeros(tmp_path: Path) -> None:
    session = Session(y=lambda x: x * 2, flat=lambda x: x[0], mean=lambda x: x.mean(axis=1))
    progress, recorded = record(session, unlike(tmp_path), tmp_path)
    found = recorded.open()
    for name in ("y", "flat"):
        factor = 2 if name == "y" else 1
        np.testing.assert_array_equal(found[name] / factor, [[1, 1, 1, 0, 0], [2, 0, 0, 0, 0], [3, 3, 3, 3, 3]])
        assert recorded.shapes[name] == ((3,), (1,), (5,))
    assert found["mean"].tolist() == [1, 2, 3]
    assert (recorded.n, recorded.left_out) == (3, {})
    assert progress[-1] == Progress("score", 3, 3)
    assert not list(tmp_path.glob("*.flat"))


def test_what_cannot_be_filled_up_is_left_out_with_the_reason(tmp_path: Path) -> None:
    session = Session(y=lambda x: x, text=lambda x: x.astype("U"), axes=lambda x: x if x.shape[1] > 1 else x[0])
    _, recorded = record(session, unlike(tmp_path), tmp_path)
    assert list(recorded.files) == ["y"]
    assert recorded.left_out == {
        "text": "it holds no numbers",
        "axes": "it changes its number of axes from sample to sample",
    }


def test_a_sample_whose_output_has_another_shape_than_before_is_found_though_rows_are_as_long(tmp_path: Path) -> None:
    data = unlike(tmp_path)
    for name in ("before", "same", "other"):
        (tmp_path / name).mkdir()
    _, before = record(Session(y=lambda x: x), data, tmp_path / "before")
    _, same = record(Session(y=lambda x: x + 1), data, tmp_path / "same")
    longer = np.ones((1, 4), np.float32)
    _, other = record(Session(y=lambda x: x if x.shape[1] > 1 else longer), data, tmp_path / "other")
    same.check_like(before)
    assert other.open()["y"].shape == before.open()["y"].shape
    with pytest.raises(RungError, match="output 'y' has not the shape that the original model gives it"):
        other.check_like(before)


def test_an_output_that_a_sample_lacks_is_left_out_with_the_reason(tmp_path: Path) -> None:
    def elements(feeds: Feeds) -> Outputs:
        return {f"s[{i}]": np.array([value]) for i, value in enumerate(np.ravel(feeds["x"]))}

    _, recorded = record(elements, unlike(tmp_path), tmp_path)  # type: ignore[arg-type] - never closed
    assert {name: value.tolist() for name, value in recorded.open().items()} == {"s[0]": [1, 2, 3]}
    assert recorded.left_out == {f"s[{i}]": "it is not there for every sample" for i in range(1, 5)}


def test_an_output_that_comes_or_goes_is_left_out_where_samples_are_alike_too(tmp_path: Path) -> None:
    def optional(feeds: Feeds) -> Outputs:
        x = feeds["x"]
        return {"y": x, ("goes" if np.array_equal(x, X[:1]) else "comes"): x}

    _, recorded = record(optional, samples(tmp_path, 1), tmp_path)  # type: ignore[arg-type] - never closed
    np.testing.assert_array_equal(recorded.open()["y"], X)
    assert recorded.left_out == dict.fromkeys(("goes", "comes"), "it is not there for every sample")


def test_outputs_that_change_their_shape_are_told_from_the_others(tmp_path: Path) -> None:
    session = Session(y=lambda x: x, mean=lambda x: x.mean(axis=1), text=lambda x: x.astype("U"))
    (tmp_path / "even").mkdir()
    data = unlike(tmp_path)
    _, recorded = record(session, data, tmp_path)
    assert recorded.uneven == {"y"}
    assert uneven(session, data) == {"y", "text"}
    assert uneven(session, samples(tmp_path / "even", 1)) == frozenset()
