"""Recipes as files: what is read, what is refused and in which words, and the schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from compressor import recipe
from compressor.bench.load import Poisson
from compressor.engines import Onnxruntime
from compressor.errors import InputError
from compressor.gates import Accuracy, Latency
from compressor.stages import Fuse, Prune, Quantize, Recover

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


def test_all_stages_stand_in_one_rung_in_their_order() -> None:
    read = recipe.parse("rungs: [{name: a, stages: [{prune: {ratio: 20%}}, recover, quantize, fuse]}]", "r")
    assert [type(stage) for stage in read.rungs[0].stages] == [Prune, Recover, Quantize, Fuse]


def test_loads_and_further_points_are_read() -> None:
    read = recipe.parse(
        """
        data: {alphabet: letters.txt}
        load: {poisson: {rate: 200/s, workers: 2, sessions: own}}
        others: [{batch: 8}, {shapes: {x: 1x3x32x32}}]
        gates: [{latency: {p99: 5ms}}, {latency: {p50: 5ms}}, {latency: {p99: 9ms, at: {batch: 8}}}]
        """,
        "r",
    )
    assert read.load == Poisson(rate="200/s", workers=2, sessions="own")
    assert [at.name() for at in read.others] == ["batch 8", "x 1x3x32x32"]
    assert read.data.alphabet == Path("letters.txt")
    assert recipe.parse(recipe.write(read), "again") == read
    jsonschema.validate(yaml.safe_load(recipe.write(read)), recipe.schema())


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
        ("gates: [{accuracy: {}}]", "recipe.gates[0].accuracy: expected max_drop, min or both, found neither"),
        ("gates: [{accuracy: {max_drop: 0.01}}]", "expected a percentage such as 20%, found 0.01"),
        ("version: 2", "recipe.version: expected 1, found 2"),
        ("version: yes", "recipe.version: expected 1, found True"),
        ("seed: 0\nseed: 1", "r.yaml: line 2, column 1: not readable as YAML: the key 'seed' stands twice"),
        ("gates: [", "not readable as YAML"),
        ("- 1", "recipe: expected a mapping of keys to values, found [1]"),
        ("", "recipe: expected a mapping of keys to values, found None"),
        ("rungs: []", "recipe.rungs: expected at least one item, found []"),
        ("gates: []", "recipe.gates: expected at least one item, found []"),
        ("rungs: [{name: baseline, stages: [fuse]}]", "found 'baseline'"),
        ("rungs: [{name: a, stages: [fuse]}, {name: a, stages: [fuse]}]", "found 'a'"),
        ("rungs: [{name: ../a, stages: [fuse]}]", "recipe.rungs[0].name"),
        (
            "rungs: [{name: a, stages: [quantize, {prune: {ratio: 20%}}]}]",
            "recipe.rungs[0].stages: expected prune before quantize",
        ),
        (
            "rungs: [{name: a, stages: [quantize, fuse, recover]}]",
            "recipe.rungs[0].stages: expected recover before quantize",
        ),
        (
            "rungs: [{name: a, stages: [fuse, {prune: {ratio: 20%}}]}]",
            "recipe.rungs[0].stages: expected prune before fuse",
        ),
        (
            "rungs: [{name: a, stages: [{prune: {ratio: 20%}}, fuse, recover]}]",
            "recipe.rungs[0].stages: expected recover before fuse",
        ),
        (
            "rungs: [{name: a, stages: [recover, {prune: {ratio: 20%}}]}]",
            "recipe.rungs[0].stages: expected prune before recover",
        ),
        (
            "rungs: [{name: a, stages: [{prune: {ratio: 20%}}, {prune: {ratio: 20%}}]}]",
            "recipe.rungs[0].stages: expected at most one prune in a rung",
        ),
        ("shapes: {x: '1x?x3'}", "expected a shape of whole numbers such as 1x3x224x224, found '1x?x3'"),
        ("load: {closed: {concurrency: 0}}", "recipe.load.closed.concurrency: expected greater than or equal to 1"),
        ("load: {constant: {rate: 200}}", "recipe.load.constant.rate: expected a rate such as 200/s, found 200"),
        ("load: [1]", "recipe.load: expected one of closed, constant, poisson, trace, found [1]"),
        ("others: [{batch: 0}]", "recipe.others[0].batch: expected greater than or equal to 1, found 0"),
        ("others: [{}]", "recipe.others[0]: expected either batch or shapes, found neither"),
        ("gates: [{accuracy: {max_drop: 1%}}, {accuracy: {min: 0.5}}]", "expected at most one accuracy gate"),
        (
            "gates: [{latency: {p99: 5ms}}, {latency: {p99: 6ms, reserve: 1ms}}]",
            "expected gates that judge different things, found two for latency p99",
        ),
        (
            "gates: [{latency: {p99: 5ms, at: {batch: 8}}}, {latency: {p99: 6ms, at: {batch: 8}}}]",
            "found two for latency p99 at batch 8",
        ),
        ("gates: [{size: {max: 1MB}}, {size: {max: 2MB}}]", "found two for size"),
        ("engine: tensorflow", "recipe.engine: expected one of auto, onnxruntime, tensorrt, found 'tensorflow'"),
        (
            "shapes: {x: [1, 3]}",
            "recipe.shapes.x: expected a shape of whole numbers such as 1x3x224x224, found [1, 3]",
        ),
        ("shapes: {x: 3}", "recipe.shapes.x: expected a shape of whole numbers such as 1x3x224x224, found 3"),
        ("gates: [{latency: {p99: 0ms}}]", "recipe.gates[0].latency: expected a time above 0, found 0ms"),
        ("limits: {memory: 8}", "expected a size such as 4MiB, found 8"),
        ("limits: {memory: 0B}", "recipe.limits.memory: expected greater than 0, found 0"),
        ("limits: {measure: 0s}", "recipe.limits.measure: expected greater than 0, found 0"),
        ("limits: {seconds: 0}", "recipe.limits.seconds: expected greater than or equal to 1, found 0"),
        ("limits: {seconds: 10000001}", "recipe.limits.seconds: expected less than or equal to 10000000, found "),
    ],
)
def test_a_wrong_recipe_is_refused_with_line_place_found_and_expected(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        recipe.parse(text, "r.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "rungs: [{name: a, stages: [quantise]}]",
        "1: 2",
        "{true: 1}",
        "shapes: {3: 1x3}",
        "data: {3: 4}",
        "gates: [{1: 2}]",
        "? [a]\n: 1",
        "? {a: b}\n: 1",
        "seed: 2024-01-01",
        "2024-01-01: 3",
        "seed: 2024-13-45",
        "2024-13-45: 3",
        f"seed: {'9' * 5000}",
        "seed: 1e400",
        "seed: .inf",
        "gates: [{latency: {p99: 2024-01-01}}]",
        f"gates: [{{latency: {{p99: {'9' * 400}ms}}}}]",
        "rungs: &a [*a]",
        f"seed: {'[' * 3000}",
        "seed: !!int many",
    ],
    ids=range(20),
)
def test_one_mistake_of_any_kind_gives_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        recipe.parse(text, "r.yaml")
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith("r.yaml:")


def test_problems_come_in_the_order_of_their_lines() -> None:
    with pytest.raises(InputError) as caught:
        recipe.parse("limits:\n  seconds: x\nunknown: 1\nseed: y\nversion: 2\n", "r.yaml")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "recipe.limits.seconds",
        "recipe.unknown",
        "recipe.seed",
        "recipe.version",
    ]


def test_no_more_than_five_problems_are_shown() -> None:
    with pytest.raises(InputError) as caught:
        recipe.parse("\n".join(f"unknown{i}: 1" for i in range(7)), "r.yaml")
    lines = str(caught.value).splitlines()
    assert [line.partition(": ")[0] for line in lines[:5]] == [f"r.yaml:{line}" for line in range(1, 6)]
    assert lines[5:] == ["and 2 more"]


def test_a_new_recipe_names_the_schema_that_it_says_how_to_write() -> None:
    lines = recipe.starter(recipe.default()).splitlines()
    assert "# yaml-language-server: $schema=recipe.v1.json" in lines
    assert any("`compress recipe schema > recipe.v1.json`" in line for line in lines)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read as a recipe"):
        recipe.read(tmp_path / "none.yaml")


def test_the_defaults_of_the_schema_are_what_a_recipe_takes() -> None:
    """An editor completes keys with them."""
    for name, part in recipe.schema()["properties"].items():
        if "default" in part:
            whole = {"version": 1, name: part["default"]}
            jsonschema.validate(whole, recipe.schema())
            assert getattr(recipe.Recipe.model_validate(whole), name) == getattr(recipe.Recipe(), name)
