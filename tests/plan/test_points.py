"""Further batch sizes and shapes: what they make of the model's inputs, with which samples, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import small

from compressor import plan, recipe
from compressor.errors import InputError
from compressor.plan import Job, Plan


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return small.classifier(tmp_path / "net.onnx")


def make(model: Path, text: str, *, batch: int | None = None) -> Plan:
    asked = recipe.parse(f"registry: {{uri: none}}\n{text}", "r.yaml")
    folder = model.parent
    return plan.make(Job(model, asked, folder / "reports", folder, scored=False, compressed=False, batch=batch))


def with_first_axis(model: Path, value: int | str) -> Path:
    proto = onnx.load(model)
    for tensor in (*proto.graph.input, *proto.graph.output):
        dim = tensor.type.tensor_type.shape.dim[0]
        dim.Clear()
        if isinstance(value, int):
            dim.dim_value = value
        else:
            dim.dim_param = value
    onnx.save(proto, model.parent / "other.onnx")
    return model.parent / "other.onnx"


def test_points_of_recipe_and_gates_are_planned_once(model: Path) -> None:
    others = "others: [{batch: 4}, {shapes: {x: 2x3x8x8}}, {batch: 4}]"
    gates = "gates: [{latency: {p99: 1s, at: {batch: 4}}}, {throughput: {min: 1/s, at: {batch: 2}}}]"
    made = make(model, f"{others}\n{gates}")
    assert [(point.at, point.shapes["x"]) for point in made.points] == [
        ("batch 4", (4, 3, 8, 8)),
        ("x 2x3x8x8", (2, 3, 8, 8)),
        ("batch 2", (2, 3, 8, 8)),
    ]


def test_a_point_has_the_samples_of_the_file_in_its_batch(model: Path) -> None:
    small.data(model.parent / "d.npz", model, 6, seed=1)
    (point,) = make(model, "data: {calibration: {path: d.npz}}\nothers: [{batch: 4}]").points
    with np.load(model.parent / "d.npz") as arrays:
        x = arrays["x"]
    first, second = (feeds["x"] for feeds in point.samples)
    np.testing.assert_array_equal(first, x[:4])
    np.testing.assert_array_equal(second, x[[4, 5, 5, 5]])  # the last is repeated


def test_a_set_smaller_than_the_batch_still_fills_it(model: Path) -> None:
    small.data(model.parent / "d.npz", model, 3, seed=1)
    (point,) = make(model, "data: {calibration: {path: d.npz}}\nothers: [{batch: 16}]").points
    assert [feeds["x"].shape for feeds in point.samples] == [(16, 3, 8, 8)]


def test_samples_that_do_not_serve_at_a_shape_are_made_up_with_a_word(model: Path) -> None:
    proto = onnx.load(model)
    for axis in (2, 3):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].Clear()
    onnx.save(proto, model)
    small.data(model.parent / "d.npz", model, 3, seed=1)
    made = make(model, "data: {calibration: {path: d.npz}}\nothers: [{shapes: {x: 1x3x16x16}}]")
    assert made.points[0].samples.source.synthetic
    assert next(iter(made.points[0].samples))["x"].shape == (1, 3, 16, 16)
    assert any(note.startswith("x 1x3x16x16: measured on made-up inputs (") for note in made.warnings)


def test_the_main_point_takes_a_batch_too(model: Path) -> None:
    made = make(model, "", batch=3)
    assert made.shapes == {"x": (3, 3, 8, 8)}
    assert next(iter(made.calibration))["x"].shape == (3, 3, 8, 8)
    assert made.model.macs == 3 * (make(model, "").model.macs or 0)


@pytest.mark.parametrize("batch", [None, 4])
def test_a_fixed_first_axis_is_refused_with_what_to_do(model: Path, batch: int | None) -> None:
    fixed = with_first_axis(model, 1)
    with pytest.raises(InputError, match=r"batch 4: input 'x' is 1x3x8x8, its first axis fixed; export the model with"):
        make(fixed, "" if batch else "others: [{batch: 4}]", batch=batch)


def test_a_fixed_first_axis_is_fine_at_its_own_batch(model: Path) -> None:
    assert make(with_first_axis(model, 1), "others: [{batch: 1}]").points[0].shapes == {"x": (1, 3, 8, 8)}


def test_a_batch_that_the_graph_refuses_inside_is_found_at_planning(model: Path) -> None:
    inside = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[batch,4] x) => (float[1,4] y) <int64[2] s = {1, 4}> { y = Reshape (x, s) }""")
    onnx.save(inside, model.parent / "inside.onnx")
    with pytest.raises(InputError, match=r"inside\.onnx: batch 8: .*export the model so that it runs there"):
        make(model.parent / "inside.onnx", "others: [{batch: 8}]")


def test_a_trace_is_looked_for_beside_the_recipe_and_read(model: Path) -> None:
    (model.parent / "arrivals.csv").write_text("seconds\n0\n0.5\n")
    made = make(model, "load: {trace: {path: arrivals.csv}}")
    assert made.recipe.load.path == model.parent / "arrivals.csv"  # type: ignore[union-attr]
    (model.parent / "arrivals.csv").write_text("0.5\n0\n")
    with pytest.raises(InputError, match=r"arrivals\.csv, line 2"):
        make(model, "load: {trace: {path: arrivals.csv}}")
    with pytest.raises(InputError, match=r"none\.csv: no such file or folder; looked for"):
        make(model, "load: {trace: {path: none.csv}}")


def test_a_trace_that_lasts_longer_than_a_measurement_is_warned_about(model: Path) -> None:
    (model.parent / "arrivals.csv").write_text("5\n6\n105\n")
    told = [w for w in make(model, "load: {trace: {path: arrivals.csv}}").warnings if "arrivals.csv" in w]
    assert len(told) == 1
    assert "lasts 100 s, of which only what comes in the first 60s less the warm-up is played: raise" in told[0]
    made = make(model, "load: {trace: {path: arrivals.csv}}\nlimits: {measure: 120s}")
    assert not any("arrivals.csv" in warning for warning in made.warnings)


def test_an_alphabet_is_looked_for_beside_the_recipe(model: Path) -> None:
    (model.parent / "letters.txt").write_text("a\nb\n")
    assert make(model, "data: {alphabet: letters.txt}").recipe.data.alphabet == model.parent / "letters.txt"
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        make(model, "data: {alphabet: none.txt}")
    (model.parent / "letters.txt").write_text("a\n\nb\n")
    with pytest.raises(InputError, match=r"letters\.txt, line 2 is empty"):
        make(model, "data: {alphabet: letters.txt}")


def test_what_is_only_measured_needs_no_rungs_no_evaluation_and_few_samples(model: Path) -> None:
    small.data(model.parent / "d.npz", model, 90, seed=1)
    made = make(
        model, "data: {calibration: {path: d.npz}}\nrungs: [{name: a, stages: [{quantize: {exclude: [nosuch]}}]}]"
    )
    assert (made.evaluation, made.metric) == (None, None)
    assert len(made.calibration) == 64
    assert made.recipe.rungs[0].stages[0].exclude == ("nosuch",)  # type: ignore[union-attr]
