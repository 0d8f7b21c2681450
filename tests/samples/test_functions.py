from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.records import Tensor
from compressor.samples import Samples, observed_shapes, read

X = [Tensor("x", "float32", ("n", 2))]
AT = {"x": (1, 2)}
_NUMBER = iter(range(10**6))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the file of a module of a name of its own that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / f"given_{next(_NUMBER)}.py"


def samples(module: Path, body: str, tensors: list[Tensor] = X, shapes: dict[str, tuple[int, ...]] = AT) -> Samples:
    text = "".join(f"    {line}\n" for line in body.splitlines())
    module.write_text(f"import numpy as np\nCALLS = []\n\ndef give():\n    CALLS.append(1)\n{text}")
    return read(Path(f"{module.stem}:give"), tensors, shapes)


def test_a_function_gives_samples_and_labels_in_three_forms(module: Path) -> None:
    same = "np.full(2, i, np.float32)"
    for number, body in enumerate(
        [
            f"for i in range(5): yield {{'x': {same}}}, i * 2",
            f"return [{{'x': {same}, 'label': i * 2}} for i in range(5)]",
            f"return (({{'x': {same}[None]}}, np.array([i * 2])[0]) for i in range(5))",
        ]
    ):
        found = samples(module.with_stem(f"{module.stem}_{number}"), body)
        assert [each["x"].tolist() for each in found] == [[[i, i]] for i in range(5)]
        assert found.labels().tolist() == [0, 2, 4, 6, 8]
        assert (found.source.source, len(found)) == (f"{module.stem}_{number}:give", 5)
        assert found.take(2, seed=0).labels().tolist() == [2 * i for i in found.take(2, seed=0).indices]


def test_each_pass_calls_anew_and_nothing_is_kept(module: Path) -> None:
    found = samples(module, "rng = np.random.default_rng(0)\nfor _ in range(3): yield {'x': rng.random(2, np.float32)}")
    again = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own bytes
    assert [each["x"].tobytes() for each in again] == [each["x"].tobytes() for each in found]
    assert len(pickle.dumps(found)) < 4000
    assert found.source.sha256 == again.source.sha256


def test_an_array_that_is_filled_again_is_no_trap(module: Path) -> None:
    found = samples(
        module, "x = np.zeros(2, np.float32)\nfor i in range(4):\n    x[:] = i\n    yield {'x': x}", X, {"x": (2, 2)}
    )
    assert [each["x"][:, 0].tolist() for each in found] == [[0, 1], [2, 3]]


def test_samples_may_differ_in_shape(module: Path) -> None:
    tensors = [Tensor("t", "float32", ("n", "time"))]
    body = "for i in (3, 7, 5): yield {'t': np.ones(i, np.float32)}"
    found = samples(module, body, tensors, {"t": (1, 5)})
    found.check()
    assert [each["t"].shape for each in found] == [(1, 3), (1, 7), (1, 5)]
    assert observed_shapes(Path(f"{module.stem}:give"), tensors) == {"t": ((3, 7),)}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for _ in range(3): yield {'x': np.random.rand(2).astype(np.float32)}", "seed its random numbers"),
        ("for i in range(3 if len(CALLS) < 2 else 2): yield {'x': np.full(2, i, np.float32)}", "sample 2 is not what"),
    ],
)
def test_a_function_that_gives_other_samples_the_next_time_is_refused(module: Path, body: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        samples(module, body).check()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('no such\\nfile')", r"give failed with KeyError: 'no such\\nfile'"),
        ("yield {'x': np.zeros(2, np.float32)}\nraise ValueError('gone')", "sample 1 failed with ValueError: gone"),
        ("raise SystemExit(3)", "failed with SystemExit: 3"),
        ("return 5", "failed with TypeError: 'int' object is not iterable"),
        ("return []", "gives no samples"),
        ("return [np.zeros(2)]", "sample 0: expected a dict .*found ndarray"),
        ("return [({'x': np.zeros(2), 'label': 1}, 2)]", "a label in the dict and another beside it"),
        ("return [{'x': [[1, 2], [3]]}]", "array 'x' failed with ValueError"),
        ("return [{'x': [{}]}]", "array 'x' is object"),
        ("return [{'x': np.zeros(2)}, {'y': np.zeros(2)}]", "sample 1: has y, expected x as the first has"),
        ("return [{'x': np.zeros(2)}, {'x': np.zeros(2, int)}]", "sample 1: array 'x' is int64 with 1 axes, expected"),
        ("return [{'y': np.zeros(2), 'z': 1.0}]", "no array for input 'x', found 'y', 'z'"),
        ("return [{'x': np.zeros(2, np.uint8)}]", "'x' is uint8, but input 'x' is float32; scale"),
        ("return [{'x': np.zeros(3, np.float32)}]", "samples of shape 3, expected 2"),
        ("return [{'x': np.array([1, np.nan])}]", "NaN or infinite values in 1 of 1 samples"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_function_is_one_sentence(module: Path, body: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        samples(module, body).check()
    assert "\n" not in str(caught.value)


def test_one_that_never_ends_is_refused(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compressor.samples.functions._MOST", 50)
    with pytest.raises(InputError, match="more than 50 samples; let it end"):
        samples(module, "while True: yield {'x': np.zeros(2, np.float32)}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_at_all:give", "cannot import 'nowhere_at_all:give'.*beside the recipe"),
        ("json:nothing", "cannot import 'json:nothing'"),
        ("json:__doc__", "expected a function, 'json:__doc__' is of type str"),
    ],
)
def test_names_of_no_function_are_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(Path(name), X, AT)


def test_a_file_of_such_a_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("json:loads").mkdir()
    np.save("json:loads/0.npy", np.ones(2, np.float32))
    assert [each["x"].tolist() for each in read(Path("json:loads"), X, AT)] == [[[1, 1]]]
