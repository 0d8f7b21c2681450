"""What training draws, compares and does, apart from the stage."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import small
from onnx import numpy_helper

from compressor import graph, machine, runtime, samples
from compressor.errors import RungError
from compressor.records import Feeds
from compressor.samples import Samples
from compressor.stages.recover import batches, loss
from compressor.stages.recover.distil import Limit, Pair, Trained, _is_check, distilled, paired
from compressor.stages.recover.interpreter import Network

torch = pytest.importorskip("torch", reason="recovery needs torch")
SETTINGS = runtime.options(1, spinning=False)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small work is done sooner by one thread where other tests run beside it."""
    monkeypatch.setattr(machine, "cpus_usable", lambda: 1)


def images(folder: Path, n: int, shape: tuple[int, ...] = (3, 8, 8)) -> Samples:
    """Give n samples of which sample i has the value i everywhere."""
    x = np.broadcast_to(np.arange(n, dtype=np.float32).reshape(-1, *(1,) * len(shape)), (n, *shape))
    np.savez(folder / "x.npz", x=x)
    text = f"g (float[b,{','.join(map(str, shape))}] x) => (float[b] y) {{ y = Relu (x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    onnx.save(model, folder / "x.onnx")
    return samples.read(folder / "x.npz", graph.open_model(folder / "x.onnx").inputs, {"x": (1, *shape)})


def drawn(given: Samples, size: int, n: int, seed: int = 0) -> list[list[int]]:
    return [[int(feed["x"].flat[0]) for feed in feeds] for feeds in islice(batches.shuffled(given, size, seed), n)]


def test_a_pass_gives_every_sample_once_in_another_order_each_time(tmp_path: Path) -> None:
    passes = drawn(images(tmp_path, 12), 4, 6)
    first, second = list(chain(*passes[:3])), list(chain(*passes[3:]))
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second


def test_a_seed_gives_the_same_order_again(tmp_path: Path) -> None:
    given = images(tmp_path, 12)
    assert drawn(given, 5, 5) == drawn(given, 5, 5)
    assert drawn(given, 5, 5) != drawn(given, 5, 5, seed=1)


def test_fewer_samples_than_a_batch_are_all_of_it(tmp_path: Path) -> None:
    assert [sorted(batch) for batch in drawn(images(tmp_path, 3), 64, 2)] == [[0, 1, 2]] * 2


def test_of_large_inputs_a_part_is_kept_at_a_time_and_all_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_POOL_BYTES", 4 * 3 * 8 * 8 * 4)
    found = drawn(images(tmp_path, 20), 2, 60)
    assert all(len(set(one + two)) == 4 for one, two in zip(found[::2], found[1::2], strict=True))
    assert set(chain(*found)) == set(range(20))


@pytest.mark.parametrize("shape", [(1, 3, 32, 24), (1, 32, 24, 1)])
def test_images_are_mirrored_and_shifted_by_an_eighth_and_mixed(shape: tuple[int, ...]) -> None:
    """Of an image whose columns are numbered, the first column says how it was shifted and mirrored."""
    across = 3 if shape[1] == 3 else 2
    column = np.arange(24, dtype=np.float32).reshape([-1 if axis == across else 1 for axis in range(4)])
    feeds = [{"x": np.broadcast_to(column, shape)} for _ in range(200)]
    made = [feed["x"] for feed in batches.varied(feeds, np.random.default_rng(0))]
    rows = [np.moveaxis(image, across, -1).reshape(-1, 24)[0] for image in made]
    assert {(image.shape, image.dtype) for image in made} == {(shape, np.dtype(np.float32))}
    plain = [row for row in rows if np.array_equal(row, row.round())]
    assert 70 < len(plain) < 130
    starts = {(bool(row[12] < row[11]), int(row.min())) for row in plain}
    assert starts == {(mirrored, low) for mirrored in (False, True) for low in (0, 1, 2, 3)}
    assert {int(row.max()) for row in plain} == {20, 21, 22, 23}
    assert all(np.abs(np.diff(row)).max() <= 1 for row in plain)


@pytest.mark.parametrize(
    "feed",
    [
        {"x": np.ones((1, 3, 8, 8), np.float32)},
        {"x": np.ones((1, 5, 32, 32), np.float32)},
        {"x": np.ones((1, 3, 32, 32), np.int64)},
        {"x": np.ones((1, 32, 32), np.float32)},
        {"x": np.ones((1, 3, 32, 32), np.float32), "more": np.ones((1, 2), np.float32)},
    ],
)
def test_what_is_no_image_stays_as_it_is(feed: Feeds) -> None:
    feeds = [feed, feed]
    assert batches.varied(feeds, np.random.default_rng(0)) is feeds


def test_a_model_takes_many_only_if_it_gives_the_same_for_them() -> None:
    feeds = [{"x": np.array([[1.0, 2.0]], np.float32)}, {"x": np.array([[5.0, 1.0]], np.float32)}]
    assert batches.takes_many(lambda feed: {"y": 2 * feed["x"]}, feeds)
    assert not batches.takes_many(lambda feed: {"y": feed["x"] - feed["x"].mean(0)}, feeds)
    assert not batches.takes_many(lambda feed: {"y": feed["x"].sum()}, feeds)

    def refuses(feed: Feeds) -> Feeds:
        if len(feed["x"]) > 1:
            raise RungError("one at a time")
        return feed

    assert not batches.takes_many(refuses, feeds)


def test_text_is_no_tensor() -> None:
    with pytest.raises(RungError, match="torch has no elements of the type of x"):
        batches.tensors({"x": np.array(["text"])})


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def value(wanted: np.ndarray, found: np.ndarray) -> float:
    compared = loss.of_outputs([{"y": wanted}])
    return float(compared({"y": torch.from_numpy(wanted)}, {"y": torch.from_numpy(found)}))


def test_logits_are_compared_as_distributions_at_temperature_2() -> None:
    wanted, found = np.random.default_rng(0).normal(size=(2, 7, 5)).astype(np.float32) * 3
    p, q = softmax(wanted / 2), softmax(found / 2)
    expected = 4 * (p * np.log(p / q)).sum() / 7 + np.square(wanted - found).mean() / wanted.var()
    assert value(wanted, found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(2, 7, 5), (2, 7, 4, 5)])
def test_probabilities_are_compared_as_they_are(shape: tuple[int, ...]) -> None:
    p, q = softmax(np.random.default_rng(0).normal(size=shape)).astype(np.float32)
    expected = (p * np.log(p / q)).sum() / (p.size / 5) + np.square(p - q).mean() / p.var()
    assert value(p, q) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "kind", ["values in 0 to 1", "unit vectors", "coordinates", "pixels", "one column", "one axis"]
)
def test_all_else_is_compared_by_its_squared_error_over_its_variance(kind: str) -> None:
    rng = np.random.default_rng(0)
    shapes = {"pixels": (2, 7, 4, 5), "one column": (2, 7, 1), "one axis": (2, 7)}
    wanted, found = rng.normal(size=shapes.get(kind, (2, 7, 5))).astype(np.float32)
    if kind == "values in 0 to 1":
        wanted = 1 / (1 + np.exp(-wanted))
    if kind == "coordinates":
        wanted = 60 * wanted
    if kind == "unit vectors":
        wanted = wanted / np.linalg.norm(wanted, axis=-1, keepdims=True)
    assert value(wanted, found) == pytest.approx(np.square(wanted - found).mean() / wanted.var(), rel=1e-5)


def test_outputs_are_added_up_and_those_that_say_nothing_left_out() -> None:
    one, two = np.random.default_rng(0).normal(size=(2, 7)).astype(np.float32)
    said = {"a": one, "b": two}
    useless = {"c": np.arange(7), "d": np.ones(7, np.float32), "e": one * np.inf, "f": 1 + one * np.float32(1e-7)}
    compared = loss.of_outputs([said | useless])
    assert set(compared.outputs) == {"a", "b"}
    found = {name: torch.from_numpy(array + 1) for name, array in said.items()}
    wanted = {name: torch.from_numpy(array) for name, array in said.items()}
    assert float(compared(wanted, found)) == pytest.approx(1 / one.var() + 1 / two.var(), rel=1e-5)


def test_feed_by_feed_the_choice_is_that_for_all_at_once() -> None:
    rng = np.random.default_rng(0)
    arrays = {"logits": 3 * rng.normal(size=(12, 5)) + np.arange(12)[:, None], "boxes": rng.uniform(0, 640, (12, 4))}
    arrays["probabilities"], arrays["units"] = softmax(arrays["logits"]), arrays["logits"]
    arrays["units"] = arrays["units"] / np.linalg.norm(arrays["units"], axis=1, keepdims=True)
    compared = loss.of_outputs({name: array[i : i + 3] for name, array in arrays.items()} for i in range(0, 12, 3))
    kinds = {"logits": "logits", "boxes": "values", "probabilities": "probabilities", "units": "values"}
    assert {name: kind for name, (kind, _) in compared.outputs.items()} == kinds
    for name, array in arrays.items():
        assert compared.outputs[name][1] == pytest.approx(array.var(), rel=1e-9)


def test_what_is_not_finite_for_a_few_feeds_is_compared_for_the_others() -> None:
    rows = [*np.random.default_rng(0).normal(size=(6, 1, 5)), np.full((1, 5), np.nan), np.zeros((1, 0))]
    compared = loss.of_outputs({"y": row, "z": row * np.inf if i > 1 else row} for i, row in enumerate(rows))
    assert set(compared.outputs) == {"y"}
    assert compared.outputs["y"][1] == pytest.approx(np.var(rows[:6]), rel=1e-9)
    assert [compared.hears({"y": row}) for row in rows] == [True] * 6 + [False] * 2


def test_outputs_of_many_feeds_are_not_kept() -> None:
    tracemalloc.start()
    loss.of_outputs({"y": np.full((1, 25, 1000), i, np.float32)} for i in range(200))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20 * 100_000


def test_an_output_of_another_shape_is_refused() -> None:
    with pytest.raises(RungError, match=r"output 'y' has shape \(3,\), expected \(7,\)"):
        value(np.arange(7, dtype=np.float32), np.arange(3, dtype=np.float32))


def spoilt(path: Path, out: Path) -> Path:
    """Write the model with noise in its weights."""
    rng = np.random.default_rng(1)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32:
            continue
        noise = rng.normal(scale=0.3 * array.std(), size=array.shape).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array + noise, tensor.name))
    onnx.save(model, out)
    return out


@pytest.fixture
def original(tmp_path: Path) -> Path:
    graph.normalise(small.classifier(tmp_path / "given.onnx"), tmp_path / "original.onnx")
    return tmp_path / "original.onnx"


@pytest.fixture
def given(tmp_path: Path, original: Path) -> Samples:
    path = small.data(tmp_path / "data.npz", tmp_path / "given.onnx", 96, 0)
    return samples.read(path, graph.open_model(original).inputs, {"x": (1, 3, 8, 8)})


Set = Callable[[], Pair]


@pytest.fixture
def pair(tmp_path: Path, original: Path, given: Samples) -> Set:
    def _pair() -> Pair:
        changed = spoilt(original, tmp_path / "changed.onnx")
        one, two = (runtime.load(path, SETTINGS) for path in (original, changed))
        return paired(Network(changed), one, two, list(islice(given, 8)), 1)

    return _pair


def done(work: Any) -> Trained:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value


def test_training_brings_a_network_closer_to_the_original(pair: Set, given: Samples) -> None:
    train, held = given.split(76, 0)
    both = pair()
    trained = done(distilled(both, train, held, Limit(40, 60)))
    assert trained.steps == 40
    assert trained.best < 0.8 * trained.before
    assert both.divergence(held) == pytest.approx(trained.best, rel=1e-6)


def test_the_same_steps_give_the_same_weights_again(pair: Set, given: Samples) -> None:
    train, held = given.split(76, 0)
    networks = [pair(), pair()]
    for both in networks:
        done(distilled(both, train, held, Limit(10, 60)))
    one, two = (both.network.weights for both in networks)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_weights_stay_where_training_makes_nothing_better(
    pair: Set, given: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = pair()
    before = {name: weight.detach().clone() for name, weight in both.network.weights.items()}
    monkeypatch.setattr("compressor.stages.recover.distil._HIGHEST_RATE", 1e3)
    trained = done(distilled(both, given, given, Limit(3, 60)))
    assert trained.best == trained.before
    assert all(torch.equal(before[name], weight) for name, weight in both.network.weights.items())


def test_training_ends_when_the_time_is_over(pair: Set, given: Samples) -> None:
    trained = done(distilled(pair(), given, given, Limit(100_000, 0.5)))
    assert 0 < trained.steps < 100_000


def test_a_feed_at_a_time_gives_the_divergence_of_all_at_once(pair: Set, given: Samples) -> None:
    both = pair()
    assert (both.width, both.many) == (64, True)
    single = Pair(both.network, both.original, both.loss, 1, many=False)
    assert single.divergence(given) == pytest.approx(both.divergence(given), rel=1e-5)


def test_an_original_of_a_fixed_batch_is_asked_one_by_one(tmp_path: Path, original: Path, given: Samples) -> None:
    changed = spoilt(original, tmp_path / "changed.onnx")
    pairs = []
    for name in ("open", "fixed"):
        for path in (original, changed):
            proto = onnx.load(path)
            for value in (*proto.graph.input, *proto.graph.output) if name == "fixed" else ():
                value.type.tensor_type.shape.dim[0].dim_value = 1
            onnx.save(proto, path)
        one, two = (runtime.load(path, SETTINGS) for path in (original, changed))
        pairs.append(paired(Network(changed), one, two, list(islice(given, 8)), 1))
    assert [(both.width, both.many) for both in pairs] == [(64, True), (64, False)]
    assert pairs[1].divergence(given) == pytest.approx(pairs[0].divergence(given), rel=1e-5)


def test_a_network_of_a_fixed_batch_is_trained_one_by_one(tmp_path: Path, given: Samples) -> None:
    """A Reshape with the batch in its shape takes no other."""
    text = "g (float[1,3,8,8] x) => (float[1,5] y) { r = Reshape (x, s) y = MatMul (r, w) }"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 192]), "s"))
    weights = np.random.default_rng(0).normal(size=(192, 5)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, tmp_path / "fixed.onnx")
    changed = spoilt(tmp_path / "fixed.onnx", tmp_path / "spoilt.onnx")
    one, two = (runtime.load(path, SETTINGS) for path in (tmp_path / "fixed.onnx", changed))
    both = paired(Network(changed), one, two, list(islice(given, 8)), 1)
    assert (both.width, both.many) == (1, False)
    trained = done(distilled(both, given, given, Limit(10, 60)))
    assert trained.best < trained.before


def test_a_step_in_parts_is_the_step_as_a_whole(pair: Set, given: Samples) -> None:
    both, other = pair(), pair()
    parts = Pair(other.network, other.original, other.loss, 5, many=True)
    for each in (both, parts):
        done(distilled(each, given, given, Limit(2, 60)))
    one, two = both.network.weights, parts.network.weights
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)


def test_what_torch_computes_otherwise_is_not_trained(tmp_path: Path, original: Path, given: Samples) -> None:
    changed = spoilt(original, tmp_path / "changed.onnx")
    session = runtime.load(original, SETTINGS)
    with pytest.raises(RungError, match="output 'logits' comes out otherwise in torch"):
        paired(Network(changed), session, session, list(islice(given, 2)), 1)


def test_an_original_whose_outputs_are_never_finite_together_teaches_nothing(original: Path, given: Samples) -> None:
    feeds = list(islice(given, 4))

    def answers(feed: Feeds) -> Feeds:
        row, odd = feed["x"][0, 0], any(feed["x"] is other["x"] for other in feeds[1::2])
        return {"y": row * np.nan if odd else row, "z": row if odd else row * np.nan}

    with pytest.raises(RungError, match="for no sample are all outputs of the original finite"):
        paired(Network(original), answers, answers, feeds, 1)


def test_a_model_without_weights_is_not_trained(tmp_path: Path) -> None:
    given = images(tmp_path, 4)
    session = runtime.load(tmp_path / "x.onnx", SETTINGS)
    with pytest.raises(RungError, match="no weight of 32-bit floats has a say"):
        paired(Network(tmp_path / "x.onnx"), session, session, list(given), 1)


def test_a_divergence_that_rounding_takes_below_0_is_0(pair: Set, given: Samples) -> None:
    class Below(loss.Loss):
        def __call__(self, *_: object) -> Any:
            return torch.tensor(-1e-8)

    both = pair()
    below = replace(both, loss=Below(both.loss.outputs))
    assert below.divergence(given) == 0
    assert below.compared({}, {}) == 0


def test_little_training_is_looked_at_too() -> None:
    assert [step for step in range(1, 61) if _is_check(step, 60)] == [1, 2, 4, 8, 15, 16, 30, 32, 45, 60]


def learning(folder: Path, text: str, arrays: dict[str, np.ndarray], x: np.ndarray) -> tuple[Pair, Samples]:
    """Set a spoilt model of one input beside the original; arrays that are no matrices stay."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(proto, folder / "taught.onnx")
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.name.startswith("w"):
            noise = np.random.default_rng(1).normal(scale=0.1, size=array.shape).astype(np.float32) * (array != 0)
            tensor.CopyFrom(numpy_helper.from_array(array + noise, tensor.name))
    onnx.save(proto, folder / "learns.onnx")
    np.savez(folder / "x.npz", x=x.astype(np.float32))
    given = samples.read(folder / "x.npz", graph.open_model(folder / "learns.onnx").inputs, {"x": (1, *x.shape[1:])})
    one, two = (runtime.load(folder / name, SETTINGS) for name in ("taught.onnx", "learns.onnx"))
    return paired(Network(folder / "learns.onnx"), one, two, list(islice(given, 8)), 1), given


def matrices(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("how", ["multiplied", "chosen", "in a product"])
def test_a_causal_model_stays_causal(tmp_path: Path, how: str) -> None:
    """What is answered for a token does not depend on later ones: by a mask, or by zeros of a matrix."""
    body = {
        "multiplied": "t = Transpose <perm = [0,2,1]> (h) s = MatMul (h, t) e = Mul (s, mask) o = MatMul (e, h)",
        "chosen": """t = Transpose <perm = [0,2,1]> (h) s = MatMul (h, t) k = Cast <to = 9> (mask)
                     e = Where (k, s, never) o = MatMul (e, h)""",
        "in a product": "o = MatMul (weave, h)",
    }[how]
    text = f"g (float[b,6,8] x) => (float[b,6,5] y) {{ h = MatMul (x, w1) {body} y = MatMul (o, w2) }}"
    arrays = matrices(w1=(8, 12), w2=(12, 5), weave=(6, 6)) | {"mask": np.ones((6, 6), np.float32)}
    arrays |= {name: np.tril(arrays[name]) for name in ("weave", "mask")} | {"never": np.zeros((1, 6), np.float32)}
    x = np.random.default_rng(0).normal(size=(80, 6, 8))
    both, given = learning(tmp_path, text, arrays, x)
    trained = done(distilled(both, given, given, Limit(20, 60)))
    both.network.save(tmp_path / "out.onnx")
    assert trained.best < trained.before
    session = runtime.load(tmp_path / "out.onnx", SETTINGS)
    other = x[:1].astype(np.float32)
    here = session({"x": other})["y"]
    other[0, 5] += 10
    there = session({"x": other})["y"]
    assert np.array_equal(here[0, :5], there[0, :5])
    assert not np.allclose(here[0, 5], there[0, 5])


ROOT = """g (float[b,6] x) => (float[b,4] y) {
    h = MatMul (x, w) q = Mul (h, h) v = ReduceMean <axes = [1]> (q) r = Sqrt (v) y = Add (h, r) }"""


def test_a_step_whose_gradient_is_not_finite_changes_nothing(tmp_path: Path) -> None:
    """The derivative of a root at 0, by that of a square, is infinity by 0; two of three steps draw that sample."""
    x = np.random.default_rng(0).normal(size=(96, 6))
    x[50] = 0
    both, given = learning(tmp_path, ROOT, matrices(w=(6, 4)), x)
    trained = done(distilled(both, given, given, Limit(40, 60)))
    assert 10 < trained.skipped < 40
    assert trained.unheard == 0
    assert trained.best < trained.before


def test_samples_that_the_original_has_no_finite_answer_to_are_left_out(tmp_path: Path) -> None:
    text = """g (float[b,6] x) => (float[b,4] y) {
        h = MatMul (x, w) l = ReduceMin <axes = [1]> (x) k = Add (l, c) r = Log (k) y = Add (h, r) }"""
    x = np.random.default_rng(0).normal(size=(12, 6))
    arrays = matrices(w=(6, 4)) | {"c": np.array(5, np.float32)}
    x[0, 0] = x[10, 0] = -9
    both, given = learning(tmp_path, text, arrays, x)
    finite = given.without(given._only(np.array([0, 10])))
    assert (both.width, both.many) == (64, True)
    assert both.divergence(given) == pytest.approx(both.divergence(finite), rel=1e-5)
    trained = done(distilled(both, given, given, Limit(5, 60)))
    assert (trained.unheard, trained.skipped) == (10, 0)
    assert trained.best < trained.before
