"""The recipes in `recipes/`: each is valid, says what proved it in one form, and can be planned on a real model."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
import sequence_blocks
import yaml
from draft import Draft
from onnx import TensorProto
from whole_run import compress, samples

from compressor import recipe
from compressor.gates import Latency

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "recipes").glob("*.yaml"))
FIRST_LINE = "# yaml-language-server: $schema=../schemas/recipe.v1.json"
NUMBER = r"-?[0-9]+\.[0-9]+"
PROVED = re.compile(
    rf"# proved: (?P<model>\S+) \| size (?P<mb>{NUMBER}) MB -> (?P<to_mb>{NUMBER}) MB "
    rf"\| speed (?:(?P<speed>{NUMBER})x \[(?P<slow>{NUMBER}), (?P<fast>{NUMBER})\]|not judged) "
    rf"\| (?P<metric>\w+) (?P<score>{NUMBER}) -> (?P<to>{NUMBER}) \[(?P<low>{NUMBER}), (?P<high>{NUMBER})\] n = [0-9]+ "
    r"\| (?:pass|fail|inconclusive) (?P<rung>\S+)"
)
MACHINE = re.compile(
    r"# machine: [0-9]+ CPUs of [^,|]+, [a-z0-9_ ]+ \| onnxruntime [0-9]+\.[0-9]+\.[0-9]+ \| 20[0-9]{2}(-[0-9]{2}){2}"
)
MODELS = {
    "audio": "crepe_tiny",
    "ci-fast": "resnet20_cifar10",
    "cnn-classifier": "resnet56_cifar10",
    "default": "resnet20_cifar10",
    "detector": "ultraface_rfb320",
    "mobile": "efficientnet_lite0",
    "tensorrt-edge": "efficientnet_lite0",
}
each = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def stated(file: Path) -> list[re.Match[str]]:
    lines = [line for line in file.read_text().splitlines() if line.startswith("# proved:")]
    found = [PROVED.fullmatch(line) for line in lines]
    assert lines
    assert all(found), f"{lines} in another form"
    return [match for match in found if match]


def test_there_is_one_for_every_family() -> None:
    assert {file.stem for file in FILES} == {*MODELS, "transformer-encoder"}


@each
def test_the_first_line_names_the_schema_by_which_the_file_is_valid(file: Path) -> None:
    text = file.read_text()
    assert text.splitlines()[0] == FIRST_LINE
    schema = json.loads((ROOT / "schemas" / "recipe.v1.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))


def test_the_default_is_what_an_sla_alone_means() -> None:
    assert recipe.read(ROOT / "recipes" / "default.yaml") == recipe.default(Latency(p99="50ms"))


@each
def test_no_path_of_somebody_stands_in_it(file: Path) -> None:
    data = recipe.read(file).data
    assert (data.calibration, data.evaluation) == (None, None)


@each
def test_its_figures_are_of_its_own_rungs_from_the_first_one_on(file: Path) -> None:
    rungs = [rung.name for rung in recipe.read(file).rungs]
    names = [match["rung"] for match in stated(file)]
    assert names == rungs[: len(names)]
    assert len({match["model"] for match in stated(file)}) == 1


@each
def test_its_figures_lie_in_their_intervals(file: Path) -> None:
    for match in stated(file):
        assert float(match["low"]) <= float(match["to"]) <= float(match["high"])
        if match["speed"]:
            assert float(match["slow"]) <= float(match["speed"]) <= float(match["fast"])


@each
def test_it_says_which_machine_proved_it_right_below_its_figures(file: Path) -> None:
    lines = file.read_text().splitlines()
    (at,) = (number for number, line in enumerate(lines) if MACHINE.fullmatch(line))
    first = next(number for number, line in enumerate(lines) if PROVED.fullmatch(line))
    assert at == first + len(stated(file))


@each
def test_the_command_that_proves_it_stands_in_it_and_a_line_in_the_documentation(file: Path) -> None:
    assert f"python benchmarks/recipes.py --only {file.stem}" in file.read_text()
    assert f"[{file.stem}](../recipes/{file.name})" in (ROOT / "docs" / "families.md").read_text()


@pytest.mark.shared
@pytest.mark.parametrize("name", MODELS)
def test_it_can_be_planned_on_a_model_of_its_family(name: str, shared: Path, tmp_path: Path) -> None:
    if name == "tensorrt-edge" and find_spec("tensorrt_rtx_bindings") is None:
        pytest.skip("TensorRT-RTX is not installed")
    planned(ROOT / "recipes" / f"{name}.yaml", shared / "models" / f"{MODELS[name]}.onnx", tmp_path)


def test_that_of_transformers_can_be_planned_on_an_encoder(tmp_path: Path) -> None:
    g = Draft(0)
    g.batch = "batch"
    ids = g.input("input_ids", ("batch", 8), TensorProto.INT64)
    x = sequence_blocks.attention(g, g.op("Gather", g.weight(7, 6), ids))
    onnx.save(g.model([sequence_blocks.feed_forward(g, x)]), model := tmp_path / "encoder.onnx")
    planned(ROOT / "recipes" / "transformer-encoder.yaml", model, tmp_path)


def planned(file: Path, model: Path, folder: Path) -> None:
    """Make sure that a dry run on other samples for calibration than for evaluation settles every rung."""
    described = {"input_ids": {"int_range": (0, 7), "shape": (1, 8)}}
    for seed, use in enumerate(("calibration", "evaluation")):
        np.savez(folder / f"{use}.npz", **samples(model, described, 40, seed))
    data = ("--calibration", folder / "calibration.npz", "--evaluation", folder / "evaluation.npz")
    ended = compress("run", model, "--recipe", file, *data, "--registry", "none", "--dry-run")
    assert ended.code == 0, ended.err
    said = " ".join(ended.out.split())
    assert all(rung.name in said for rung in recipe.read(file).rungs)
    for before, after in pairwise(rung.name for rung in recipe.read(file).rungs):
        assert f"{before}, {after}" in said
