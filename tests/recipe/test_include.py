"""Recipes that include others: what goes over what, which file and line a problem names, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from compressor import recipe
from compressor.bench.load import Closed, Poisson
from compressor.engines import Auto, Onnxruntime
from compressor.errors import InputError
from compressor.gates import Accuracy, Latency, Size
from compressor.recipe import Place

BASE = """\
seed: 7
data:
  calibration: {path: inputs.npz, samples: 50}
  metric: top1
engine: {onnxruntime: {threads: 2, spinning: true}}
load: {closed: {concurrency: 2}}
gates:
  - latency: {p99: 5ms}
  - accuracy: {max_drop: 1%}
limits: {seconds: 30, memory: 1GiB}
"""


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path / "base.yaml"


def written(text: str, name: str = "recipe.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        recipe.read(path)
    return str(caught.value)


def test_keys_go_over_those_of_the_included_recipe_and_the_others_stay() -> None:
    read = recipe.read(
        written("$include: base.yaml\ndata: {metric: f1, calibration: {samples: 9}}\nlimits: {memory: 2GiB}")
    )
    assert read.data.calibration
    assert (read.data.calibration.path, read.data.calibration.samples) == (Path("inputs.npz"), 9)
    assert (read.data.metric, read.seed) == ("f1", 7)
    assert (read.limits.memory, read.limits.seconds) == (2 * 2**30, 30)
    assert read.gates == (Latency(p99="5ms"), Accuracy(max_drop="1%"))


def test_lists_and_scalars_are_replaced_as_a_whole() -> None:
    read = recipe.read(written("$include: base.yaml\nseed: 1\ngates: [{size: {max: 1MB}}]\ndata: {calibration: null}"))
    assert (read.seed, read.gates, read.data.calibration) == (1, (Size(max="1MB"),), None)


@pytest.mark.parametrize(
    ("text", "load", "engine"),
    [
        ("load: {poisson: {rate: 5/s}}", Poisson(rate="5/s"), Onnxruntime(threads=2, spinning=True)),
        (
            "load: {closed: {sessions: own}}",
            Closed(concurrency=2, sessions="own"),
            Onnxruntime(threads=2, spinning=True),
        ),
        ("engine: auto", Closed(concurrency=2), Auto()),
        ("engine: {onnxruntime: {threads: 4}}", Closed(concurrency=2), Onnxruntime(threads=4, spinning=True)),
    ],
)
def test_another_kind_of_load_or_engine_replaces_and_the_same_kind_is_merged(
    text: str, load: object, engine: object
) -> None:
    read = recipe.read(written(f"$include: base.yaml\n{text}"))
    assert (read.load, read.engine) == (load, engine)


def test_of_several_the_later_wins() -> None:
    written("seed: 8\nlimits: {seconds: 40}", "later.yaml")
    one, other = (
        recipe.read(written(f"$include: [{names}]")) for names in ("base.yaml, later.yaml", "later.yaml, base.yaml")
    )
    assert [(read.seed, read.limits.seconds, read.limits.memory) for read in (one, other)] == [
        (8, 40, 2**30),
        (7, 30, 2**30),
    ]


def test_a_merge_key_goes_over_what_is_included() -> None:
    text = "$include: base.yaml\nlimits:\n  <<: {seconds: 99, memory: 3GiB}\n  memory: 4GiB\n"
    read = recipe.read(written(text))
    assert (read.limits.seconds, read.limits.memory) == (99, 4 * 2**30)


def test_an_include_starts_at_its_own_file_and_data_at_no_file(base: Path) -> None:
    written("$include: ../base.yaml\nseed: 3", "shared/middle.yaml")
    read = recipe.read(written("$include: ../shared/middle.yaml", "models/recipe.yaml"))
    assert read.seed == 3
    assert read.data.calibration
    assert read.data.calibration.path == Path("inputs.npz")  # where it starts is the outermost recipe's folder
    assert recipe.read(written(f"$include: {base}", "elsewhere/recipe.yaml")).seed == 7


def test_a_text_without_a_file_includes_from_the_working_folder() -> None:
    assert recipe.parse("$include: base.yaml", "text").seed == 7


def test_a_problem_names_the_file_and_line_it_came_from() -> None:
    written("limits:\n  seconds: soon\n\ngats: []\n", "wrong.yaml")
    told = refused(written("$include: wrong.yaml\ndata:\n  metrik: f1\nlimits: {memory: 3}\n")).splitlines()
    assert told == [
        "recipe.yaml:3: recipe.data.metrik: unknown key; did you mean 'metric'?",
        "recipe.yaml:4: recipe.limits.memory: expected a size such as 4MiB, found 3",
        "wrong.yaml:2: recipe.limits.seconds: expected a whole number, found 'soon'",
        "wrong.yaml:4: recipe.gats: unknown key; did you mean 'gates'?",
    ]


def test_what_is_overridden_is_not_judged() -> None:
    written("seed: soon\nlimits: {seconds: soon}", "wrong.yaml")
    assert recipe.read(written("$include: wrong.yaml\nseed: 2\nlimits: {seconds: 5}")).seed == 2


def test_a_key_that_stands_twice_is_found_in_the_file_where_it_does() -> None:
    written("seed: 1\nseed: 2", "twice.yaml")
    assert refused(written("$include: twice.yaml\nseed: 3")).startswith("twice.yaml: line 2, column 1: ")


def test_aliases_are_counted_in_every_file() -> None:
    layers = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    written(f"l0: &l0 [1, 2]\n{layers}", "bomb.yaml")
    assert refused(written("$include: bomb.yaml")).startswith("bomb.yaml: its aliases stand for ")


def test_aliases_of_many_files_are_counted_together() -> None:
    layers = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 4))
    for number in range(20):
        written(f"l0: &l0 1\n{layers}\nk{number}: *l3", f"part{number}.yaml")
    names = ", ".join(f"part{number}.yaml" for number in range(20))
    assert refused(written(f"$include: [{names}]")).startswith("recipe.yaml: its aliases stand for ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\n$include: none.yaml", "recipe.yaml:2: $include: none.yaml: no file; a relative path starts at /"),
        ("$include: recipe.yaml", "recipe.yaml:1: $include: recipe.yaml includes itself: recipe.yaml > recipe.yaml"),
        ("$include: other/../recipe.yaml", "includes itself"),
        ("$include: .", "recipe.yaml:1: $include: .: no regular file"),
        ("$include: /dev/zero", "recipe.yaml:1: $include: /dev/zero: no regular file"),
        ("$include: fifo", "recipe.yaml:1: $include: fifo: no regular file"),
        ("$include: large.yaml", "large.yaml: expected a recipe of at most 1.05 MB, found more"),
        ("$include: [half.yaml, half.yaml]", "recipe.yaml:1: $include: more than 1.05 MB with all that is included"),
        ("$include: binary.yaml", "binary.yaml: cannot be read as a recipe"),
        (
            "$include: list.yaml",
            "recipe.yaml:1: $include: list.yaml is no recipe: expected a mapping of keys to values",
        ),
        ("$include: empty.yaml", "recipe.yaml:1: $include: empty.yaml is no recipe"),
        ("$include: nested.yaml", "nested.yaml: not readable as YAML"),
        ("$include: loop.yaml", "recipe.yaml:1: $include: "),
        ("$include: ''", "recipe.yaml:1: $include: expected the path of a recipe, or a list of them"),
        ("$include:", "recipe.yaml:1: $include: expected the path"),
        ("$include: 3", "recipe.yaml:1: $include: expected the path"),
        ("$include: {path: base.yaml}", "recipe.yaml:1: $include: expected the path"),
        ("$include:\n  - base.yaml\n  - [base.yaml]", "recipe.yaml:3: $include: expected the path"),
        ("environment: [A]\n$include: '${A}.yaml'", "recipe.yaml:2: $include: expected a path as it is"),
        (f"$include: {'a' * 5000}", "recipe.yaml:1: $include: 'aaa"),
        ('$include: "a\\0b"', "recipe.yaml:1: $include: expected a path as it is"),
        ("$includes: base.yaml", "recipe.yaml:1: recipe.$includes: unknown key; did you mean '$include'?"),
        ("data: {$include: base.yaml}", "recipe.yaml:1: recipe.data.$include: unknown key"),
    ],
)
def test_what_cannot_be_included_is_refused_at_its_line(text: str, message: str) -> None:
    Path("other").mkdir()
    os.mkfifo("fifo")
    Path("loop.yaml").symlink_to("loop.yaml")
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, content in {
        "large": f"seed: 1 # {'x' * 10_000_000}",
        "half": f"seed: 1 # {'x' * 600_000}",
        "list": "[1, 2]",
        "empty": "",
        "nested": "[" * 3000,
    }.items():
        written(content, f"{name}.yaml")
    told = refused(written(text))
    assert message in told
    assert len(told.splitlines()) == 1


def test_recipes_that_include_each_other_are_told_in_their_order() -> None:
    written("$include: recipe.yaml", "second.yaml")
    assert "second.yaml:1: $include: recipe.yaml includes itself: recipe.yaml > second.yaml > recipe.yaml" in refused(
        written("$include: second.yaml")
    )


def test_ten_levels_are_read_and_eleven_are_not() -> None:
    written("seed: 5", "r0.yaml")
    for level in range(1, 12):
        written(f"$include: r{level - 1}.yaml", f"r{level}.yaml")
    assert recipe.read(Path("r10.yaml")).seed == 5
    assert "r1.yaml:1: $include: expected at most 10 recipes that include each other" in refused(Path("r11.yaml"))


def test_an_include_of_the_same_file_on_two_ways_is_no_loop() -> None:
    written("$include: base.yaml\nseed: 1", "one.yaml")
    written("$include: base.yaml\nlimits: {seconds: 9}", "two.yaml")
    read = recipe.read(written("$include: [one.yaml, two.yaml]"))
    assert (read.seed, read.limits.seconds) == (7, 9)


def test_every_gate_is_found_where_it_is_written() -> None:
    written(
        """\
gates:
  - latency: {p99: 5ms}
  - {latency: {p99.9: 7ms}}
  -
    latency:
      p50: 3ms
      at: {batch: 8}
  - throughput: {min: 5/s, at: {shapes: {x: 1x3}}}
  - accuracy: {max_drop: 1%}
  - size: {max: 1MB}
baseline: models:/net@champion
""",
        "gates.yaml",
    )
    wanted = {
        "latency p99": 2,
        "latency p99.9": 3,
        "latency p50 at batch 8": 5,
        "throughput at x 1x3": 8,
        "accuracy": 9,
        "size": 10,
        "baseline": 11,
    }
    for path in (Path("gates.yaml"), written("seed: 1\n$include: gates.yaml")):
        assert recipe.places(path) == {name: Place(Path("gates.yaml"), line) for name, line in wanted.items()}


def test_gates_that_nobody_wrote_have_no_place() -> None:
    assert recipe.places(written("seed: 1")) == {}


def test_includes_and_lists_of_variables_fit_the_schema() -> None:
    for text in ("$include: a.yaml", "$include: [a.yaml, b.yaml]\nenvironment: [A_1, _b]"):
        jsonschema.validate(yaml.safe_load(text), recipe.schema())
    for text in ("$include: 3", "$include: {}", "environment: A", "environment: [1a]", "$includes: a"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(text), recipe.schema())


def test_a_recipe_of_a_report_includes_nothing(base: Path) -> None:
    with pytest.raises(InputError, match=r"report\.json: recipe\.\$include: "):
        recipe.of_report({"$include": str(base)}, "report.json")
