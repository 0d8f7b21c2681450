from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from finished import finish as finished
from onnxruntime import quantization as q

from compressor.errors import RungError
from compressor.records import Array, Feeds
from compressor.stages.quantize import repair
from compressor.stages.quantize.job import Job
from compressor.stages.quantize.repair import repaired

LAYERS = 8
BODY = "\n".join(f"[conv{i}] h{i + 1} = Conv<pads=[1,1,1,1]>(h{i}, W{i})" for i in range(LAYERS))
CHAIN = f"g (float[1,8,6,6] h0) => (float[1,8,6,6] h8) {{ {BODY} }}"


@pytest.fixture
def chain(make: Any, tmp_path: Path) -> Callable[..., Job]:
    """Give a job for eight convolutions in a row, where 8 bits ruin the weights of those named."""

    def _chain(*ruined: int) -> Job:
        weights = {f"W{i}": weight(i) for i in range(LAYERS)}
        for i in ruined:  # great weights that read a channel of zeros leave the others no step
            weights[f"W{i}"][:, 0] = 1000
            if i:
                weights[f"W{i - 1}"][0] = 0
        return Job(make(CHAIN, weights).path, tmp_path / "out.onnx", {"elsewhere": "the recipe says so"})

    return _chain


def test_a_good_model_is_built_once_and_left_alone(chain: Any) -> None:
    job, builder = chain(), Builder(static)
    found = finished(repaired(builder, job, feeds()))
    assert (found.job, found.notes, builder.builds) == (job, (), 1)
    assert db(job) > 20


@pytest.mark.parametrize("culprits", [(3,), (0,), (7,), (2, 6), (0, 7)])
def test_the_nodes_that_8_bits_ruin_are_the_only_ones_left_float(culprits: tuple[int, ...], chain: Any) -> None:
    job, builder = chain(*culprits), Builder(static)
    found = finished(repaired(builder, job, feeds()))
    names = {f"conv{i}" for i in culprits}
    assert found.job.excluded.keys() == {"elsewhere", *names}
    assert all(found.job.excluded[name].startswith("INT8 alone gives ") for name in names)
    assert db(job) > 20
    assert len(found.notes) == 1
    assert builder.builds <= 3 + 3 * len(culprits)  # log2 of 8, and before, between, and after


def test_an_outlier_of_an_activation_takes_both_who_makes_it_and_who_reads_it(make: Any, tmp_path: Path) -> None:
    weights = {f"W{i}": weight(i) for i in range(LAYERS)}
    weights["W3"][0] *= 3000  # one channel of what conv3 gives
    weights["W4"][:, 0] /= 3000  # that conv4 reads as if nothing were
    job = Job(make(CHAIN, weights).path, tmp_path / "out.onnx", {})
    found = finished(repaired(Builder(static), job, feeds()))
    assert found.job.excluded.keys() == {"conv3", "conv4"}
    assert db(job) > 20


def test_an_outlier_of_the_input_takes_one_node(chain: Any) -> None:
    job = chain()
    wide = [{"h0": each["h0"] + np.float32([5000, 0, 0, 0, 0, 0, 0, 0]).reshape(1, 8, 1, 1)} for each in feeds()]
    model = onnx.load(job.model)
    first = next(tensor for tensor in model.graph.initializer if tensor.name == "W0")
    narrow = onnx.numpy_helper.to_array(first).copy()
    narrow[:, 0] = 0
    first.CopyFrom(onnx.numpy_helper.from_array(narrow, "W0"))
    onnx.save(model, job.model)
    found = finished(repaired(Builder(static, wide), job, wide))
    assert found.job.excluded.keys() == {"elsewhere", "conv0"}


def test_a_scheme_whose_layers_cannot_be_run_alone_is_searched_too(make: Any, tmp_path: Path) -> None:
    body = "\n".join(f"[mm{i}] h{i + 1} = MatMul(h{i}, W{i})" for i in range(LAYERS))
    weights = {f"W{i}": np.linalg.qr(drawn((8, 8), i))[0] for i in range(LAYERS)}
    weights["W5"] = weights["W5"] + np.float32([[1000]] + [[0]] * 7)
    weights["W4"][:, 0] = 0  # what the great weights read is nothing
    model = make(f"g (float[4,8] h0) => (float[4,8] h8) {{ {body} }}", weights)
    given = [{"h0": drawn((4, 8), seed)} for seed in range(3)]
    found = finished(repaired(Builder(dynamic), Job(model.path, tmp_path / "out.onnx", {}), given))
    assert found.job.excluded.keys() == {"mm5"}
    assert "with it in INT8 the worst output has " in found.job.excluded["mm5"]


def test_what_nothing_mends_is_said_and_the_best_is_built(chain: Any) -> None:
    job = chain(3)

    def build(wanted: Job) -> None:
        """Ruin the model whatever is float, and more when all is."""
        static(wanted)
        model = onnx.load(wanted.out)
        wrong = 3.0 if len(wanted.excluded) > LAYERS else 2.0
        output = model.graph.output[0].name
        for node in model.graph.node:
            node.output[:] = ["inner" if name == output else name for name in node.output]
        model.graph.node.append(onnx.helper.make_node("Mul", ["inner", "wrong"], [output]))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(wrong), "wrong"))
        onnx.save(model, wanted.out)

    found = finished(repaired(build, job, feeds()))
    assert found.job == job
    said = f"with 0 more nodes float the worst has {db(job):.1f} dB, the best that was found, below 20"
    assert said in found.notes[0]
    assert db(job) < 20


def test_an_output_that_is_not_finite_is_the_worst_possible(chain: Any) -> None:
    job = chain()

    def build(wanted: Job) -> None:
        static(wanted)
        model = onnx.load(wanted.out)
        for scale in (tensor for tensor in model.graph.initializer if tensor.name == "h8_scale"):
            scale.CopyFrom(onnx.numpy_helper.from_array(np.float32(np.inf), "h8_scale"))
        onnx.save(model, wanted.out)

    found = finished(repaired(build, job, feeds()))
    assert found.job.excluded.keys() == {"elsewhere", "conv7"}
    assert "is not finite where the original's is" in found.notes[0]


def test_a_file_that_does_not_run_is_searched_without_looking_at_layers(chain: Any) -> None:
    job = chain()

    def build(wanted: Job) -> None:
        static(wanted)
        if "conv5" not in wanted.excluded:
            model = onnx.load(wanted.out)
            next(node for node in model.graph.node if node.name == "conv5").op_type = "NoSuchOperator"
            onnx.save(model, wanted.out)

    found = finished(repaired(build, job, feeds()))
    assert found.job.excluded.keys() == {"elsewhere", "conv5"}
    assert db(job) > 20
    assert "could not load out.onnx" in found.notes[0]
    assert found.notes[1].startswith("no layer could be looked at by itself: ")


def test_a_search_that_takes_too_long_leaves_more_float_and_says_so(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "_MOST_BUILDS", 3)
    job, builder = chain(3), Builder(static)
    found = finished(repaired(builder, job, feeds()))
    assert found.job.excluded.keys() >= {"elsewhere", "conv3"}
    assert db(job) > 20
    assert found.notes[1].startswith("the search ended after 3 builds")
    assert builder.builds == 3


def test_a_class_that_changes_is_not_looked_at_where_there_are_scores(make: Any, tmp_path: Path) -> None:
    text = "g (float[4,8] x) => (float[4,8] y, int64[4,8] n) { [m] y = MatMul(x, A) \n [c] n = Cast<to=7>(y) }"
    job = Job(make(text, {"A": drawn((8, 8))}).path, tmp_path / "out.onnx", {})
    given = [{"x": drawn((4, 8), seed)} for seed in range(3)]
    assert finished(repaired(Builder(static, given), job, given)).notes == ()


def test_what_the_quantizer_refuses_is_passed_on(chain: Any) -> None:
    def build(wanted: Job) -> None:
        raise RungError(f"refused {wanted.model.name}")

    with pytest.raises(RungError, match=r"refused model\.onnx"):
        finished(repaired(build, chain(), feeds()))


class Builder:
    """A way of building that counts."""

    def __init__(self, build: Callable[..., None], given: Iterable[Feeds] | None = None) -> None:
        self.build = build
        self.given = given
        self.builds = 0

    def __call__(self, job: Job) -> None:
        self.builds += 1
        self.build(job, *([self.given] if self.given else []))


def static(job: Job, given: Iterable[Feeds] | None = None) -> None:
    q.quantize_static(
        job.model,
        job.out,
        SimpleNamespace(get_next=iter([*(given or feeds()), None]).__next__),
        per_channel=True,
        activation_type=q.QuantType.QUInt8,
        nodes_to_exclude=list(job.excluded),
    )


def dynamic(job: Job) -> None:
    q.quantize_dynamic(job.model, job.out, weight_type=q.QuantType.QInt8, nodes_to_exclude=list(job.excluded))


def weight(seed: int) -> Array:
    """Give weights that keep the size of what they read."""
    return drawn((8, 8, 3, 3), seed) / np.float32(72**0.5)


def feeds() -> list[Feeds]:
    """Give inputs whose first channel is 0."""
    channels = np.float32([0, 1, 1, 1, 1, 1, 1, 1]).reshape(1, 8, 1, 1)
    return [{"h0": drawn((1, 8, 6, 6), seed) * channels} for seed in range(3)]


def db(job: Job) -> float:
    """Give the SQNR of what was built, computed without graph optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    one, two = (onnxruntime.InferenceSession(str(path), options) for path in (job.model, job.out))
    pairs = [(one.run(None, feed)[0], two.run(None, feed)[0]) for feed in feeds()]
    wanted, found = (np.stack(side).astype(np.float64) for side in zip(*pairs, strict=True))
    return float(10 * np.log10(np.square(wanted).sum() / np.square(found - wanted).sum()))


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
