"""Recipes as files: what is read, what is refused and in which words, and the schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from compressor import recipe
from compressor.engines import Onnxruntime
from compressor.errors import InputError
from compressor.gates import Accuracy, Latency
from compressor.stages import Fuse, Prune, Quantize

ROOT = Path(__file__).parents[2]
DESIGN = """
version: 1
seed: 0
shapes: {input: 1x3x224x224}
data:
  calibration: {path: calibration_data/model.npz, samples: 200}
  evaluation: {path: calibration_data/model_eval.npz}
  preprocess: {layout: nhwc, resize: 256, crop: 224, mean: [127, 127, 127], std: [128, 128, 128]}
  metric: top1
engine: auto
load: {closed: {concurrency: 1}}
rungs:
  - {name: int8, stages: [quantize]}
  - {name: int8-fused, stages: [{quantize: {scheme: auto}}, fuse]}
  - {name: prune20-int8-fused, stages: [{prune: {ratio: 20%}}, quantize, fuse]}
  - {name: prune40-int8-fused, stages: [{prune: {ratio: 40%}}, quantize, fuse], engine: {onnxruntime: {threads: 2}}}
gates:
  - latency: {p99: 50ms, reserve: 0ms, confidence: 95%}
  - accuracy: {max_drop: 1%, confidence: point}
limits: {seconds: 600, memory: 8GiB, measure: 60s}
registry: {uri: null, name: null}
"""


def test_the_grammar_of_the_design_is_read() -> None:
    read = recipe.parse(DESIGN, "design")
    assert read.shapes == {"input": (1, 3, 224, 224)}
    assert read.data.calibration is not None
    assert (read.data.calibration.path, read.data.calibration.samples) == (Path("calibration_data/model.npz"), 200)
    assert read.rungs[2].stages == (Prune(ratio="20%"), Quantize(), Fuse())
    assert read.rungs[3].engine == Onnxruntime(threads=2, spinning=False)
    assert read.gates == (Latency(p99="50ms"), Accuracy(max_drop="1%"))
    assert (read.limits.memory, read.limits.measure) == (8 * 2**30, 60)


def test_the_default_ladder_is_the_one_of_the_design() -> None:
    assert recipe.parse(DESIGN, "design").rungs[:3] == recipe.LADDER[:3]
    assert [rung.name for rung in recipe.LADDER] == [
        "int8",
        "int8-fused",
        "prune20-int8-fused",
        "prune40-int8-fused",
    ]


def test_the_checked_in_default_recipe_is_the_default() -> None:
    assert recipe.read(ROOT / "recipes" / "default.yaml") == recipe.default(Latency(p99="50ms"))


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.name)
def test_every_checked_in_recipe_is_read_and_fits_the_schema(path: Path) -> None:
    recipe.read(path)
    jsonschema.validate(yaml.safe_load(path.read_text()), recipe.schema())


def test_the_checked_in_schema_is_the_generated_one() -> None:
    assert json.loads((ROOT / "schemas" / "recipe.v1.json").read_text()) == recipe.schema()


def test_the_schema_is_valid_and_takes_what_the_design_writes() -> None:
    jsonschema.Draft202012Validator.check_schema(recipe.schema())
    jsonschema.validate(yaml.safe_load(DESIGN), recipe.schema())


@pytest.mark.parametrize("text", [DESIGN, "{}", "version: 1"])
def test_a_recipe_survives_being_written(text: str) -> None:
    read = recipe.parse(text, "r")
    assert recipe.parse(recipe.write(read), "again") == read
    assert recipe.parse(recipe.write(read, everything=False), "again") == read
    assert recipe.parse(recipe.starter(read), "again") == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "version: 1\ngates:\n  - latency: {p99: fast}\n",
            "r.yaml:3: recipe.gates[0].latency.p99: expected a time such as 50ms, found 'fast'",
        ),
        ("gats: []", "r.yaml:1: recipe.gats: unknown key; did you mean 'gates'?"),
        ("gates:\n  - accuracy: {max_drop: 1%, confidnce: point}", "did you mean 'confidence'?"),
        ("rungs:\n  - name: a\n    stages:\n      - quantise", "r.yaml:4: recipe.rungs[0].stages[0]: expected one of "),
        ("gates: [{latency: {p99: 5ms, p95: 4ms}}]", "expected exactly one of p50, p90, p95, p99, p99.9, found "),
        ("gates: [{latency: {p99: 5ms, reserve: 5ms}}]", "expected a reserve below p99: 5ms, found 5ms"),
        ("gates: [latency]", "expected exactly one of p50"),
        ("gates: [{accuracy: {}}]", "recipe.gates[0].accuracy.max_drop: required, but missing"),
        ("gates: [{accuracy: {max_drop: 0.01}}]", "expected a percentage such as 20%, found 0.01"),
        ("version: 2", "recipe.version: expected 1, found 2"),
        ("seed: 0\nseed: 1", "r.yaml: line 2, column 1: not readable as YAML: the key 'seed' stands twice"),
        ("gates: [", "not readable as YAML"),
        ("- 1", "recipe: expected a mapping of keys to values, found [1]"),
        ("", "recipe: expected a mapping of keys to values, found None"),
        ("rungs: []", "recipe.rungs:"),
        ("rungs: [{name: baseline, stages: [fuse]}]", "found 'baseline'"),
        ("rungs: [{name: a, stages: [fuse]}, {name: a, stages: [fuse]}]", "found 'a'"),
        ("rungs: [{name: ../a, stages: [fuse]}]", "recipe.rungs[0].name"),
        ("shapes: {x: '1x?x3'}", "expected a shape of whole numbers such as 1x3x224x224, found '1x?x3'"),
        ("load: {closed: {concurrency: 4}}", "the only concurrency that can be measured so far, found 4"),
        ("engine: tensorflow", "recipe.engine: expected one of auto, onnxruntime, found 'tensorflow'"),
        ("limits: {memory: 8}", "expected a size such as 4MiB, found 8"),
    ],
)
def test_a_wrong_recipe_is_refused_with_line_place_found_and_expected(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        recipe.parse(text, "r.yaml")
    assert message in str(caught.value)


def test_one_mistake_gives_one_message() -> None:
    with pytest.raises(InputError) as caught:
        recipe.parse("rungs: [{name: a, stages: [quantise]}]", "r.yaml")
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read as a recipe"):
        recipe.read(tmp_path / "none.yaml")
