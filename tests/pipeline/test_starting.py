"""Recipes that are written for a model: they plan as they are, say what was assumed, and fit what the model is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
import small
import whole_run
import yaml
from onnx import TensorProto, helper, numpy_helper

from compressor import recipe
from compressor.gates import Accuracy, Latency
from compressor.recipe import Recipe
from compressor.samples import Preprocess

MODELS = (
    "crepe_tiny",
    "efficientnet_lite0",
    "mlperf_tiny_kws_dscnn_bn",
    "mlperf_tiny_resnet8_cifar10",
    "ppocr_cls",
    "resnet20_cifar10",
    "resnet56_cifar10",
    "silero_vad_16k_op15",
    "ultraface_rfb320",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(*words: object, to: str = "recipe.yaml") -> tuple[Recipe, str, str]:
    """Write a recipe, and give it, its text, and what was said."""
    ended = whole_run.compress("recipe", "init", *words, "--to", to)
    assert ended.code == 0, ended.err
    text = Path(to).read_text()
    jsonschema.validate(yaml.safe_load(text), recipe.schema())
    assert text.startswith("# yaml-language-server: $schema=")
    return recipe.read(Path(to)), text, ended.err


def planned(model: Path, to: str = "recipe.yaml") -> str:
    ended = whole_run.compress("run", model, "--recipe", to, "--dry-run")
    assert ended.code == 0, ended.err
    return ended.out


def images(path: Path, model: Path, prepare: Preprocess, n: int = 120) -> None:
    """Save 8-bit images, [n, height, width, channels], and as labels what the model says of them once prepared."""
    rng = np.random.default_rng(3)
    drawn = rng.normal(0, 0.5, (n, 8, 8, 3)) + rng.normal(0, 1.5, (n, 1, 1, 3))  # as `small` draws them
    raw = np.clip(drawn * (58.395, 57.12, 57.375) + (123.675, 116.28, 103.53), 0, 255).astype(np.uint8)
    session = whole_run.opened(model)
    labels = [
        int(session.run(None, {"x": prepare.prepare(one, (3, 8, 8))[None].astype(np.float32)})[0].argmax())
        for one in raw
    ]
    np.savez(path, x=raw, label=np.array(labels))


def convolution(path: Path, dims: list[int | str | None]) -> Path:
    """Save a network of one convolution and a mean, for images of any size."""
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_model_with_data_beside_it_gets_a_recipe_that_names_them(folder: Path) -> None:
    model = small.classifier(folder / "net.onnx")
    (folder / "calibration_data").mkdir()
    small.data(folder / "calibration_data" / "net.npz", model, 200, seed=1)
    Path("deep/er").mkdir(parents=True)
    found, text, said = written(model, "--sla", "p95=7ms", to="deep/er/recipe.yaml")
    assert found.data.calibration
    assert found.data.evaluation
    assert found.data.calibration.path == found.data.evaluation.path == Path("../../calibration_data/net.npz")
    assert (found.data.calibration.samples, found.data.metric) == (100, "top1")
    assert found.gates == (Latency(p95="7ms"), Accuracy(max_drop="1%"))
    assert [rung.name for rung in found.rungs] == [rung.name for rung in recipe.LADDER]
    assert "100 are scored" in text
    assert "budget" not in said
    assert "100 samples, top1" in planned(model, "deep/er/recipe.yaml")


def test_a_model_without_data_gets_no_rung_that_prunes_and_is_told_how_to_give_them(folder: Path) -> None:
    model = small.classifier(folder / "net.onnx")
    found, text, said = written(model)
    assert [rung.name for rung in found.rungs] == ["int8", "int8-fused"]
    assert "# data:\n#   calibration: {path: inputs.npz, samples: 200}" in text
    assert "no data was found" in said
    (latency, accuracy) = found.gates
    assert isinstance(latency, Latency)
    assert latency.p99 is not None
    assert latency.p99 > 0
    assert accuracy == Accuracy(max_drop="1%")
    assert "comes from a quick timing" in said
    planned(model)


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        (["n", 3, "h", "w"], "1x3x224x224"),
        (["n", 3, 16, "w"], "1x3x16x224"),
        (["n", "c", "h", "w"], "1x3x224x224"),
        ([None, 3, None, None], "1x3x224x224"),
    ],
)
def test_open_dimensions_are_assumed_and_said_to_be(folder: Path, dims: list[int | str | None], shape: str) -> None:
    model = convolution(folder / "any.onnx", dims)
    found, text, said = written(model)
    assert found.shapes == {"image": tuple(map(int, shape.split("x")))}
    assert "assumed" in said
    assert "input 'image': " in text
    assert shape in planned(model)


def test_shapes_that_are_given_are_taken(folder: Path) -> None:
    found, _, said = written(convolution(folder / "any.onnx", ["n", 3, "h", "w"]), "--shape", "image=2x3x9x11")
    assert found.shapes == {"image": (2, 3, 9, 11)}
    assert "assumed" not in said


@pytest.mark.parametrize(
    ("true", "known"),
    [
        (Preprocess(layout="nhwc"), {"layout": "nhwc"}),
        (
            Preprocess(layout="nhwc", mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375)),
            {"layout": "nhwc", "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]},
        ),
    ],
    ids=["raw", "imagenet"],
)
def test_labels_tell_how_images_become_inputs(folder: Path, true: Preprocess, known: Mapping[str, object]) -> None:
    model = small.classifier(folder / "net.onnx")
    images(folder / "images.npz", model, true)
    found, text, said = written(model, "--calibration", "images.npz", "--evaluation", "images.npz")
    assert found.data.preprocess == Preprocess.model_validate(known)
    assert "100%" in text
    assert "data.preprocess is what scores best" in said
    planned(model)


def test_without_labels_values_stay_as_they_are_and_the_block_is_a_comment(folder: Path) -> None:
    model = small.classifier(folder / "net.onnx")
    raw = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)
    np.savez("images.npz", x=raw)
    found, text, said = written(model, "--calibration", "images.npz", "--evaluation", "images.npz")
    assert found.data.preprocess == Preprocess(layout="nhwc")
    assert "  # preprocess: {layout: nhwc, mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}\n" in text
    assert "put its mean and std under data.preprocess" in said
    again = text.replace("  # preprocess: ", "  preprocess: ").replace("  preprocess: {layout: nhwc}\n", "")
    assert recipe.parse(again, "r").data.preprocess != found.data.preprocess  # the comment reads as a key


def test_names_that_a_model_gives_stay_in_comments_and_texts(folder: Path) -> None:
    name = "x: [1]\n$include: /etc/passwd\n${PATH} # '\""
    model = small.classifier(folder / "net.onnx")
    proto = onnx.load(model)
    for node in proto.graph.node:
        node.input[:] = [name if value == "x" else value for value in node.input]
    proto.graph.input[0].name = name
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
    proto.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "w"
    onnx.save(proto, model)
    found, text, _ = written(model)
    assert set(found.shapes) == {name}
    assert set(yaml.safe_load(text)) == {"version", "shapes", "rungs", "gates"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.onnx"], "none.onnx"),
        (["text.onnx"], "not a readable ONNX model"),
        (["new.yaml"], "a file to write it to is --to new.yaml"),
        (["net.onnx", "--to", "there.yaml"], "there.yaml: exists already; name another file"),
        (["net.onnx", "--to", "no/where.yaml"], "no/where.yaml: its folder is not there"),
        (["net.onnx", "--to", "link.yaml"], "link.yaml: exists already"),
        (["--shape", "x=1"], "are of a MODEL: name it"),
        (["net.onnx", "--shape", "z=1"], "the model has no input 'z'"),
        (["net.onnx", "--calibration", "none.npz"], "none.npz"),
        (["net.onnx", "--metric", "topp1"], "data.metric: expected one of"),
        (["net.onnx", "--sla", "5"], "--sla"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(folder: Path, words: list[str], message: str) -> None:
    small.classifier(folder / "net.onnx")
    Path("text.onnx").write_text("hello")
    Path("there.yaml").write_text("seed: 1")
    Path("link.yaml").symlink_to("nowhere.yaml")
    before = sorted(path.name for path in folder.iterdir())
    to = () if "--to" in words or "new.yaml" in words else ("--to", "fresh.yaml")
    ended = whole_run.compress("recipe", "init", *words, *to)
    assert (ended.code, message in ended.err) == (2, True), ended.err
    assert sorted(path.name for path in folder.iterdir()) == before
    assert Path("there.yaml").read_text() == "seed: 1"


def test_without_a_file_the_recipe_is_printed(folder: Path) -> None:
    ended = whole_run.compress("recipe", "init", small.classifier(folder / "net.onnx"))
    assert ended.code == 0
    assert [rung.name for rung in recipe.parse(ended.out, "r").rungs] == ["int8", "int8-fused"]


def test_shapes_of_unknown_rank_are_asked_for(folder: Path) -> None:
    model = small.classifier(folder / "net.onnx")
    proto = onnx.load(model)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, model)
    ended = whole_run.compress("recipe", "init", model)
    assert (ended.code, "--shape" in ended.err) == (2, True)


@pytest.mark.shared
@pytest.mark.parametrize("name", MODELS)
def test_every_real_model_gets_a_recipe_that_a_run_takes(shared: Path, name: str) -> None:
    model = shared / "models" / f"{name}.onnx"
    found, _, _ = written(model)
    assert not any("prune" in rung.name for rung in found.rungs)  # no data were given
    planned(model)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "data", "known"),
    [
        ("resnet20_cifar10", "cifar10_test10000.npz", {"mean": (123.675, 116.28, 103.53), "layout": "nhwc"}),
        ("mlperf_tiny_resnet8_cifar10", "cifar10_test10000.npz", {"mean": None, "layout": "nhwc"}),
    ],
)
def test_the_preprocessing_of_real_models_is_found(
    shared: Path, name: str, data: str, known: Mapping[str, object]
) -> None:
    words = ("--calibration", shared / "data" / data, "--evaluation", shared / "data" / data)
    found, _, _ = written(shared / "models" / f"{name}.onnx", *words)
    assert found.data.preprocess
    assert {key: getattr(found.data.preprocess, key) for key in known} == known
    assert any("prune" in rung.name for rung in found.rungs)
