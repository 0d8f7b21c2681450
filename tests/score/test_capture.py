import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.records import Array, Feeds, Outputs, Progress, Tensor
from compressor.samples import Samples, read
from compressor.score import Recorded, deterministic, outputs, rows


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
