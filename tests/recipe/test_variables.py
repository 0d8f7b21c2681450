"""Environment variables in recipes: what takes their place, which are read at all, and that no message shows them."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from compressor import recipe
from compressor.errors import InputError
from compressor.gates import Macs
from compressor.recipe import Recipe

SECRET = "hunter2-se'cr\\et"  # noqa: S105 - a password for these tests


def read(text: str) -> Recipe:
    return recipe.parse(text, "r.yaml")


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(text)
    return str(caught.value)


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"N": "12", "WHO": "net", "EMPTY": "", "SECRET": SECRET}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("UNSET", raising=False)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("${WHO}", "net"),
        ("a-${WHO}-${N}.b", "a-net-12.b"),
        ('"${WHO}"', "net"),
        ("'${WHO}${WHO}'", "netnet"),
        ("${UNSET:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${WHO:-other}", "net"),
        ("${UNSET:-}x", "x"),
        ("x${EMPTY}", "x"),
        ("$${WHO}", "${WHO}"),
        ("$${WHO}${WHO}", "${WHO}net"),
        ("$WHO $$ $", "$WHO $$ $"),
        ("|-\n    ${WHO}", "net"),
        ("${UNSET:-${WHO}", "${WHO"),
    ],
)
def test_a_variable_is_replaced_wherever_it_stands_in_a_value(written: str, found: str) -> None:
    text = f"environment: [WHO, N, UNSET, EMPTY]\nregistry:\n  name: {written}\n"
    assert read(text).registry.name == found


def test_a_value_without_quotes_is_read_as_yaml_reads_it() -> None:
    text = "environment: [N, UNSET]\nseed: ${N}\ndata: {metric: null}\nlimits: {seconds: '${N}'}\n"
    assert (read(text).seed, read(text).limits.seconds) == (12, 12)
    assert read("environment: [UNSET]\nregistry:\n  uri: ${UNSET:-null}").registry.uri is None
    assert read("environment: [UNSET]\nregistry: {uri: '${UNSET:-null}'}").registry.uri == "null"


@pytest.mark.parametrize(
    "value", ["{a: 1}", "[1]", "a: b", "x\nseed: 3", "*a", "&a b", "!!python/x y", "<<", "=", "- 1"]
)
@pytest.mark.parametrize("quoted", ["${VALUE}", '"${VALUE}"'])
def test_a_value_stays_one_text_whatever_it_holds(value: str, quoted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALUE", value)
    read_ = read(f"environment: [VALUE]\nregistry:\n  uri: {quoted}\n")
    assert (read_.registry.uri, read_.seed) == (value, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "seed: 1\nregistry: {name: '${PATH}'}",
            "r.yaml:2: ${PATH}: the recipe does not list this variable: add PATH ",
        ),
        ("registry:\n  name: ${WHO:-net}", "r.yaml:2: ${WHO}: the recipe does not list this variable"),
        (
            "environment: [UNSET]\nseed: ${UNSET}",
            "r.yaml:2: ${UNSET}: this environment variable is not set: set it, or ",
        ),
        ("seed: ${}", "r.yaml:1: expected ${NAME} or ${NAME:-default}, found '${}'; $${ stands for ${ itself"),
        ("seed: ${a b}", "r.yaml:1: expected ${NAME} or ${NAME:-default}"),
        ("environment: [N]\nseed: ${N", "r.yaml:2: expected ${NAME} or ${NAME:-default}"),
        ("environment: N", "r.yaml:1: recipe.environment: expected a list of names of environment variables"),
        ("environment:\n  - N\n  - A-B", "r.yaml:3: recipe.environment: expected a list of names"),
        ("environment: {N: 1}", "r.yaml:1: recipe.environment: expected a list of names"),
        ("environment: [[N]]", "r.yaml:1: recipe.environment: expected a list of names"),
        ("environment: [N]\ndata: {metric: ${N}}", "between { } or [ ], a variable needs quotes"),
        ("environmnt: [N]", "recipe.environmnt: unknown key; did you mean 'environment'?"),
    ],
)
def test_what_is_not_listed_not_set_or_not_written_right_is_refused(text: str, message: str) -> None:
    told = refused(text)
    assert message in told
    assert len(told.splitlines()) == 1


def test_a_variable_fits_the_schema_wherever_it_is_read() -> None:
    text = """
environment: [N, UNSET]
seed: ${N}
target: ${UNSET:-auto}
data: {calibration: {path: a.npz, samples: "${N}"}}
engine: {onnxruntime: {threads: "${N}", spinning: "${UNSET:-true}"}}
gates: [{latency: {p99: "${N}ms", confidence: "${UNSET:-95}%", at: {batch: "${N}"}}}, {macs: {max: "${N}M"}}]
limits: {memory: "${N}GiB", seconds: "${N}"}
"""
    jsonschema.validate(yaml.safe_load(text), recipe.schema())
    found = read(text)
    assert (found.seed, found.limits.memory, found.gates[1]) == (12, 12 * 2**30, Macs(max="12M"))
    for wrong in ("seed: N", "target: other", "limits: {memory: 3}", "data: {calibration: {path: a, samples: many}}"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(wrong), recipe.schema())


def test_keys_are_no_values() -> None:
    assert read("environment: [WHO]\nshapes: {'${WHO}': 1x3}").shapes == {"${WHO}": (1, 3)}


def test_names_that_an_included_recipe_lists_may_be_used_and_problems_name_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text("environment: [WHO]\nregistry:\n  name: ${WHO}\n")
    assert read("$include: base.yaml\nenvironment: [N]\nseed: ${N}").registry.name == "net"
    assert read("$include: base.yaml\nregistry: {uri: '${WHO}'}").registry.uri == "net"
    Path("base.yaml").write_text("seed: 1\nregistry:\n  name: ${WHO}\n")
    assert refused("$include: base.yaml").startswith("base.yaml:3: ${WHO}: the recipe does not list")
    assert (
        read("$include: base.yaml\nregistry: {name: mine}").registry.name == "mine"
    )  # what nobody reads needs nothing


@pytest.mark.parametrize(
    "place",
    [
        "seed: '${SECRET}'",
        "limits: {measure: 'a${SECRET}b'}",
        "registry: {name: 'https://me:${SECRET}@host'}",
        "registry: ['${SECRET}']",
        "gates: ['${SECRET}']",
        "gates: [{latency: {p99: '${SECRET}'}}]",
        'data: {calibration: {path: ["${SECRET}"]}}',
        "rungs: [{name: '${SECRET}', stages: [fuse]}]",
        "version: '${SECRET}'",
        "load: {closed: '${SECRET}'}",
        "target: '${SECRET}'",
        "engine: '${SECRET}'",
        "seed: !!int ${SECRET}",
    ],
)
def test_no_message_shows_what_the_environment_holds(place: str) -> None:
    told = refused(f"environment: [SECRET]\n{place}")
    assert not any(part in told for part in ("hunter2", "cr\\et", "cr\\\\et"))
    assert told.startswith(("r.yaml:2: recipe.", "r.yaml: not readable as YAML: "))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("0755123", "252499"),
        ("0xCAFE1234", "3405648436"),
        ("19:05:07", "68707"),
        ("1_234_567", "1234567"),
        ("2031-07-09", "2031, 7, 9"),
        ("6.02e+23", "6.02"),
    ],
)
@pytest.mark.parametrize("place", ["target: ${SECRET}", "data:\n  metric:\n  - ${SECRET}", "gates:\n- ${SECRET}"])
def test_nor_what_yaml_makes_of_it(value: str, read: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", value)
    assert read in repr(yaml.safe_load(value))
    told = refused(f"environment: [SECRET]\n{place}")
    assert value not in told
    assert read not in told
    assert "${SECRET}" in told


def test_a_value_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "\udcff")
    assert refused("environment: [WHO]\nseed: ${WHO}").startswith("r.yaml:2: ${WHO}: this environment variable holds ")


def test_what_a_recipe_says_itself_is_shown() -> None:
    assert "found 'soon'" in refused("environment: [UNSET]\nseed: ${UNSET:-soon}")
    assert "found '${WHO}'" in refused("environment: [WHO]\nseed: ${WHO}")


def test_a_text_that_looks_like_a_variable_survives_being_written() -> None:
    text = "registry: {name: 'a$${WHO}'}\nshapes: {'${x}': 1x3}\ndata: {metric: '$$${N}'}\nenvironment: [N]"
    before = read(text)
    assert (before.registry.name, before.data.metric) == ("a${WHO}", "$${N}")
    assert read(recipe.write(before)) == before
    assert read(recipe.starter(before)) == before


def test_a_recipe_of_a_report_takes_nothing_from_the_environment() -> None:
    before = read("environment: [WHO]\nregistry: {name: '${WHO}', uri: 'http://$${SECRET}'}")
    again = recipe.of_report(before.model_dump(mode="json", by_alias=True, exclude_none=True), "report.json")
    assert again == before
    with pytest.raises(InputError, match=r"report\.json: recipe\.environment: "):
        recipe.of_report({"environment": ["SECRET"], "registry": {"uri": "http://${SECRET}"}}, "report.json")
