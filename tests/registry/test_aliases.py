"""Which version becomes the champion, which stays a candidate and why, and what is promoted by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import registered
from test_recording import OPTIONS, _file, _report, _write_model

from compressor import records as r
from compressor import registry
from compressor.errors import InputError, MachineError
from compressor.registry import entry

pytestmark = registered.NOISE
BASELINE = {"baseline": {"model": "models:/served/1"}}


@pytest.fixture
def uri(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    yield from registered.empty(tmp_path_factory, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    (path / "int8").mkdir(parents=True)
    for name in ("report.json", "report.md", "recipe.yaml"):
        (path / name).write_text("{}")
    _write_model(path / "int8" / "net.onnx")
    return path


def made(uri: str, folder: Path, seed: int, *, asked: dict[str, Any] | None = None, **changes: Any) -> r.Registration:
    """Record a run that differs from all others by its seed, and so makes a version of its own."""
    artifact = r.Artifact("onnxruntime", "cpu", (_file(folder, "int8/net.onnx"),), 0.0, OPTIONS)
    report = _report(artifact, started=datetime(2026, 3, 4, 5, 0, seed, tzinfo=UTC), **changes)
    recipe = {"seed": seed, "registry": {"name": "served"}, **(asked or {})}
    return registry.record(uri, replace(report, recipe=recipe), folder)


def beside(version: str) -> r.Served:
    return r.Served(
        f"models:/served/{version}",
        "served",
        version,
        r.Size(1, 1, 1, 1),
        r.Artifact("onnxruntime", "cpu", (), 0.0, {}),
    )


def aliases(uri: str) -> dict[str, str]:
    return registered.aliases(uri, "served")


def test_what_met_every_gate_is_the_champion_at_once(uri: str, folder: Path) -> None:
    assert made(uri, folder, 1).alias == "champion"
    second = made(uri, folder, 2)
    assert (second.version, second.alias, second.note) == ("2", "champion", "")
    assert aliases(uri) == {"champion": "2"}


@pytest.mark.parametrize("verdict", ["fail", "inconclusive"])
def test_what_did_not_pass_gets_no_alias(uri: str, folder: Path, verdict: Any) -> None:
    found = made(uri, folder, 1, verdict=verdict)
    assert (found.version, found.alias) == ("1", None)
    assert aliases(uri) == {}


def test_what_was_measured_elsewhere_is_a_candidate_until_it_is_proved(uri: str, folder: Path) -> None:
    made(uri, folder, 1, asked={"proved_on": "C*"})
    found = made(uri, folder, 2, asked={"proved_on": "the server's cpu"})
    assert (found.version, found.alias) == ("2", "candidate")
    assert found.note == "measured on cpu: prove it on the server's cpu, with `compress verify`"
    assert aliases(uri) == {"champion": "1", "candidate": "2"}
    assert registry.record(uri, _again(folder, 2, {"proved_on": "the server's cpu"}), folder) == found


def _again(folder: Path, seed: int, asked: dict[str, Any]) -> r.Report:
    artifact = r.Artifact("onnxruntime", "cpu", (_file(folder, "int8/net.onnx"),), 0.0, OPTIONS)
    report = _report(artifact, started=datetime(2026, 3, 4, 5, 0, seed, tzinfo=UTC))
    return replace(report, recipe={"seed": seed, "registry": {"name": "served"}, **asked})


def test_times_of_a_stand_in_make_a_candidate(uri: str, folder: Path) -> None:
    trial = _again(folder, 1, {}).trials[0]
    assert trial.measurement
    proxied = replace(trial, measurement=replace(trial.measurement, proxy="the graph on the CPU, not a10g"))
    found = made(uri, folder, 1, trials=(proxied,))
    assert (found.alias, found.note) == (
        "candidate",
        "its latency is that of a stand-in: prove it where it will serve, with `compress verify`",
    )


def test_the_champion_s_follower_was_measured_beside_it(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    found = made(uri, folder, 2, asked=BASELINE, champion=beside("1"))
    assert (found.alias, found.note) == ("champion", "")
    assert aliases(uri) == {"champion": "2"}


@pytest.mark.parametrize("measured", ["1", None])
def test_where_another_became_champion_meanwhile_it_is_a_candidate(
    uri: str, folder: Path, measured: str | None
) -> None:
    made(uri, folder, 1)
    made(uri, folder, 2)
    found = made(uri, folder, 3, asked=BASELINE, champion=beside(measured) if measured else None)
    assert found.alias == "candidate"
    assert found.note == "version 2 is the champion now, beside which it was not measured: run again against it"
    assert aliases(uri) == {"champion": "2", "candidate": "3"}


def test_where_there_is_no_champion_the_first_is_it(uri: str, folder: Path) -> None:
    found = made(uri, folder, 1, asked=BASELINE)
    assert (found.alias, found.note) == ("champion", "")


def test_a_champion_of_another_name_is_no_champion_of_this_one(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    other = replace(beside("1"), name="other")
    assert made(uri, folder, 2, asked={"baseline": {"model": "models:/other/1"}}, champion=other).alias == "candidate"


def test_the_champion_that_is_made_again_stays_it_wherever_that_was(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    later = replace(_again(folder, 1, {"proved_on": "x"}), started=datetime(2026, 4, 1, tzinfo=UTC))
    found = registry.record(uri, later, folder)
    assert (found.version, found.alias, found.confirmed, found.note) == ("1", "champion", True, "")


def test_a_candidate_that_becomes_champion_is_no_candidate_any_more(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    made(uri, folder, 2, asked={"proved_on": "x"})
    told = r"served version 2: is a candidate, .*`compress verify models:/served/2` there; --force promotes it"
    with pytest.raises(InputError, match=told):
        registry.promote(uri, "served", "2", force=False)
    assert aliases(uri) == {"champion": "1", "candidate": "2"}
    assert registry.promote(uri, "served", "2", force=True) == registry.Promoted("served", "2", "1")
    assert aliases(uri) == {"champion": "2"}


def test_a_candidate_whose_alias_went_to_another_is_a_candidate_still(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    made(uri, folder, 2, asked={"proved_on": "x"})
    made(uri, folder, 3, asked={"proved_on": "x"})
    assert aliases(uri) == {"champion": "1", "candidate": "3"}
    with pytest.raises(InputError, match=r"version 2: is a candidate, .* \(measured on cpu: prove it on x"):
        registry.promote(uri, "served", "2", force=False)


def test_an_alias_by_hand_makes_a_candidate_too(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    registered.client(uri).set_registered_model_alias("served", "candidate", "1")
    with pytest.raises(InputError, match=r"version 1: is a candidate, .* where it counts: `compress verify models:/se"):
        registry.promote(uri, "served", "1", force=False)


def test_what_was_proved_once_is_no_candidate_because_it_is_made_again_elsewhere(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    made(uri, folder, 2)
    again = replace(_again(folder, 1, {"proved_on": "x"}), started=datetime(2026, 4, 1, tzinfo=UTC))
    assert registry.record(uri, again, folder).alias is None
    assert aliases(uri) == {"champion": "2"}
    assert registry.promote(uri, "served", "1", force=False).before == "2"  # back to what was served before


def test_who_insists_once_has_to_insist_again(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    made(uri, folder, 2, asked={"proved_on": "x"})
    registry.promote(uri, "served", "2", force=True)
    registry.promote(uri, "served", "1", force=False)
    with pytest.raises(InputError, match="version 2: is a candidate"):
        registry.promote(uri, "served", "2", force=False)


def test_a_champion_that_was_withdrawn_meanwhile_is_not_followed(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    registered.client(uri).delete_registered_model_alias("served", "champion")
    found = made(uri, folder, 2, asked=BASELINE, champion=beside("1"))
    assert (found.alias, found.note) == (
        "candidate",
        "version 1, beside which it was measured, is the champion no more: run again",
    )


def test_a_candidate_that_was_proved_has_no_reason_left(uri: str, folder: Path) -> None:
    assert made(uri, folder, 1, asked={"proved_on": "x"}).note
    proved = replace(_again(folder, 1, {"proved_on": "c*"}), started=datetime(2026, 4, 1, tzinfo=UTC))
    found = registry.record(uri, proved, folder)
    assert (found.version, found.alias, found.note) == ("1", "champion", "")
    assert "compressor.note" not in registered.tags(uri, "1", "served")
    assert registry.promote(uri, "served", "1", force=False).version == "1"


def test_what_was_made_for_another_kind_of_machine_is_a_candidate(uri: str, folder: Path) -> None:
    found = made(uri, folder, 1, asked={"target": "arm-dotprod"})
    assert (found.alias, found.note) == (
        "candidate",
        "made for arm-dotprod, which was not here: prove it there, with `compress verify`",
    )


def test_an_engine_that_was_never_run_is_for_elsewhere(folder: Path) -> None:
    report = _again(folder, 1, {"target": "tensorrt"})
    trial = report.trials[0]
    engine = replace(trial.artifacts[0], engine="tensorrt", files=(r.File("int8/a10g.engine", "x", 9),))
    built = replace(report, trials=(replace(trial, artifacts=(engine,), measurement=None),))
    assert engine.is_engine
    assert entry.elsewhere(built) == "cpu"
    assert entry.elsewhere(replace(report, trials=(replace(trial, artifacts=(engine,)),))) is None


def test_versions_beyond_a_page_are_seen(uri: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compressor.registry.versions._PAGE", 2)
    for seed in range(1, 6):
        made(uri, folder, seed)
    assert [past.version for past in registry.history(uri, "served")] == ["5", "4", "3", "2", "1"]
    assert registry.promote(uri, "served", "1", force=False).before == "5"


def test_what_is_promoted_leaves_another_candidate_alone(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    made(uri, folder, 2)
    made(uri, folder, 3, asked={"proved_on": "x"})
    assert registry.promote(uri, "served", "1", force=False).before == "2"
    assert aliases(uri) == {"champion": "1", "candidate": "3"}
    assert registry.promote(uri, "served", "1", force=False).before is None


@pytest.mark.parametrize("verdict", ["fail", "inconclusive", None])
def test_only_what_met_every_gate_is_promoted_unless_somebody_insists(uri: str, folder: Path, verdict: Any) -> None:
    made(uri, folder, 1)
    made(uri, folder, 2, verdict=verdict or "pass")
    if verdict is None:  # registered by an older version of this package, or by another
        registered.client(uri).delete_model_version_tag("served", "2", "compressor.verdict")
    registered.client(uri).set_registered_model_alias("served", "champion", "1")
    told = rf"served version 2: its verdict is {verdict or 'unknown'}, and only what met every gate .*--force"
    with pytest.raises(InputError, match=told):
        registry.promote(uri, "served", "2", force=False)
    assert aliases(uri) == {"champion": "1"}
    assert registry.promote(uri, "served", "2", force=True) == registry.Promoted("served", "2", "1")
    assert aliases(uri) == {"champion": "2"}


def test_what_did_worse_on_a_machine_where_it_was_verified_is_not_promoted(uri: str, folder: Path) -> None:
    made(uri, folder, 1)
    client = registered.client(uri)
    client.set_model_version_tag("served", "1", "verified.server", "fail on 2026-03-05, p99 80 ms")
    with pytest.raises(InputError, match="its verdict on server is fail on 2026-03-05, p99 80 ms, and only"):
        registry.promote(uri, "served", "1", force=False)
    client.set_model_version_tag("served", "1", "verified.another", "pass on 2026-03-06")
    with pytest.raises(InputError, match="its verdict on server is fail on 2026-03-05, p99 80 ms, and only"):
        registry.promote(uri, "served", "1", force=False)
    client.set_model_version_tag("served", "1", "verified.server", "pass on 2026-03-07")
    assert registry.promote(uri, "served", "1", force=False).version == "1"


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("served", "7", r"served: has no version '7'; there is 1, 2"),
        ("served", "champion", r"has no version 'champion'; there is 1, 2"),
        ("served", "-1", r"has no version '-1'; there is 1, 2"),
        ("served", "", r"has no version ''; there is 1, 2"),
        ("served", "1" * 30, r"has no version '1{30}'; there is 1, 2"),
        ("served", "\u0661", r"there is 1, 2"),
        ("other", "1", r"other: has no version '1'; there is none"),
        ("o'ther", "1", r"o'ther: has no version '1'; there is none"),
        ("a/b", "1", r"a/b: has no version '1'; there is none"),
        ("", "1", r": has no version '1'; there is none"),
        ("\x1b[2J\n", "1", r"has no version '1'; there is none"),
    ],
)
def test_what_is_not_there_cannot_be_promoted(uri: str, folder: Path, name: str, version: str, message: str) -> None:
    made(uri, folder, 1)
    made(uri, folder, 2)
    with pytest.raises(InputError, match=message) as caught:
        registry.promote(uri, name, version, force=True)
    assert "\x1b" not in str(caught.value)
    assert aliases(uri) == {"champion": "2"}


def test_a_registry_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no registry at sqlite:///.*none\.db; name another one"):
        registry.promote(f"sqlite:///{tmp_path}/none.db", "served", "1", force=False)
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(MachineError, match=r"http://127\.0\.0\.1:9"):
        registry.promote("http://127.0.0.1:9", "served", "1", force=False)
