"""Which version a recipe's baseline stands for, and what is told of the machine that the recipe is proved on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from found import ENVIRONMENT

from compressor import machine, recipe, registry
from compressor.errors import InputError
from compressor.plan.champions import Pinned, doubts, pinned
from compressor.records import VersionName

ASKED = "baseline: {{model: {}, tolerance: {{speed: 5%}}}}\nregistry: {{name: net}}"


def asked(model: str) -> recipe.Recipe:
    return recipe.parse(ASKED.format(f"'{model}'"), "r")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[VersionName, VersionName]:
    """Let a registry know these names only."""
    names: dict[VersionName, VersionName] = {}
    monkeypatch.setattr(registry, "find", lambda _uri, name: names.get(name))
    return names


def test_without_a_baseline_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find", None)
    assert pinned(recipe.Recipe(), None) == (recipe.Recipe(), None)


@pytest.mark.parametrize("name", ["net@champion", "net@production", "net/3", "net/latest", "other@champion"])
def test_an_alias_becomes_the_version_that_it_stands_for(known: dict[VersionName, VersionName], name: str) -> None:
    model = name.replace("@", "/").partition("/")[0]
    known[VersionName.read(f"models:/{name}")] = VersionName(model, "3")
    found, version = pinned(asked(f"models:/{name}"), "sqlite:///x.db")
    assert version is not None
    assert (str(version.asked), str(version.version)) == (f"models:/{name}", f"models:/{model}/3")
    assert found.baseline is not None
    assert (found.baseline.model, found.baseline.tolerance.speed) == (f"models:/{model}/3", 0.05)
    assert found.model_copy(update={"baseline": None}) == asked(f"models:/{name}").model_copy(update={"baseline": None})


@pytest.mark.usefixtures("known")
def test_the_first_run_of_a_name_has_no_champion_yet() -> None:
    first = asked("models:/net@champion")
    assert pinned(first, "sqlite:///x.db") == (first, None)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("name", ["net@champoin", "net@production", "net/1", "net/latest", "other@champion", "other/1"])
def test_what_is_not_there_is_refused_with_what_may_be_named(name: str) -> None:
    with pytest.raises(InputError) as caught:
        pinned(asked(f"models:/{name}"), "sqlite:///x.db")
    assert str(caught.value) == (
        f"baseline: models:/{name}: there is no such version: name one that is there (`compress history` shows them), "
        "or models:/net@champion, which this run may be the first to register"
    )


def test_without_a_registry_there_is_nothing_to_look_in() -> None:
    with pytest.raises(InputError, match=r"baseline: models:/net@champion is looked up in a registry.*--registry URI"):
        pinned(asked("models:/net@champion"), None)


CPU = "Intel(R) Xeon(R) Gold 6248 [rev ?] CPU @ 2.50GHz"


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (CPU, True),
        (CPU.upper(), True),
        ("*", True),
        ("*xeon*", True),
        ("intel(r) xeon(r) gold*", True),
        ("*GOLD 62?8*", False),  # ? is a question mark
        ("*[rev ?]*", True),
        ("*[rev x]*", False),
        ("*[r]*", False),  # no class of characters
        ("*[rev *] cpu*", True),
        ("Intel", False),  # the whole name
        ("Xeon*", False),
        ("", False),
        ("**", True),
        ("*]*", True),
        ("*[!x]*", False),
    ],
)
def test_only_a_star_is_special_in_a_cpu_s_name(pattern: str, named: bool) -> None:  # noqa: FBT001
    assert machine.is_named(CPU, pattern) is named


def test_letters_of_all_scripts_are_alike_in_both_cases() -> None:
    assert machine.is_named("STRASSE", "straße*")
    assert machine.is_named("ÄÖ\\d", "äö\\D")


PINNED = Pinned(VersionName("net", "champion", is_alias=True), VersionName("net", "1"))


@pytest.mark.parametrize(
    ("text", "champion", "told"),
    [
        ("seed: 0", None, []),
        ("baseline: models:/net@champion", PINNED, []),
        ("{baseline: models:/net@champion, load: {poisson: {rate: 5/s}}}", PINNED, ["models:/net/1: rungs are held"]),
        (
            "{baseline: models:/net@champion, gates: [{latency: {p99: 5ms, at: {batch: 8}}}]}",
            PINNED,
            ["models:/net/1: rungs are held against it one call after another"],
        ),
        ("{load: {poisson: {rate: 5/s}}}", None, []),
        ("baseline: models:/net@champion", None, ["models:/net@champion: there is no such version yet"]),
        ("proved_on: 'A CPU'", None, []),
        ("proved_on: 'Other*'", None, ["this machine is 'a CPU', and the recipe is proved on 'Other*'"]),
        ("{baseline: models:/net@champion, proved_on: x}", None, ["models:/net", "this machine is"]),
    ],
)
def test_what_a_reader_must_know_is_told(text: str, champion: Pinned | None, told: list[str]) -> None:
    found: Any = list(doubts(recipe.parse(text, "r"), replace(ENVIRONMENT, cpu="a CPU"), champion))
    assert len(found) == len(told)
    assert all(line.startswith(start) for line, start in zip(found, told, strict=True))
