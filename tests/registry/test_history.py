"""The versions of a model, as they were measured, whoever made them."""

from __future__ import annotations

import hashlib
import json
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

pytestmark = registered.NOISE
RECIPE = {"seed": 3, "registry": {"name": "served"}, "limits": {"seconds": 9}}


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


def report(folder: Path, second: int = 1, *, p99_high_ms: float | None = 33.25, **changes: Any) -> r.Report:
    artifact = r.Artifact("onnxruntime", "cpu", (_file(folder, "int8/net.onnx"),), 0.0, OPTIONS)
    plain = _report(artifact, started=datetime(2026, 3, 4, 5, 0, second, tzinfo=UTC))
    (trial,) = plain.trials
    assert trial.measurement
    measured = replace(
        trial.measurement,
        latency=replace(trial.measurement.latency, p99_ms=31.5, p99_high_ms=p99_high_ms),
        score=r.Score("top1", 0.745, 40, 0.6, 0.9),
        speedup=r.Speedup(2.5, 2.25, 2.75),
    )
    trials = (replace(trial, measurement=measured),)
    data = r.Data(None, None, None, "top1")
    return replace(plain, trials=trials, data=data, recipe={**RECIPE, "seed": second}, **changes)


def test_the_numbers_are_those_of_the_report(uri: str, folder: Path) -> None:
    one = report(folder)
    registry.record(uri, one, folder)
    before = datetime.now(UTC)
    (found,) = registry.history(uri, "served")
    assert found.made <= before
    hashed = json.dumps({"seed": 1}, sort_keys=True).encode()
    assert replace(found, made=one.started) == registry.Past(
        version="1",
        aliases=("champion",),
        made=one.started,
        rung="int8",
        size_bytes=(folder / "int8" / "net.onnx").stat().st_size,
        p99_ms=31.5,
        p99_high_ms=33.25,
        speedup=2.5,
        metric="top1",
        score=0.745,
        verdict="pass",
        recipe=hashlib.sha256(hashed).hexdigest()[:12],
        cpu="cpu",
        verified={},
    )


def test_the_latest_comes_first_by_number(uri: str, folder: Path) -> None:
    for second in range(1, 12):
        registry.record(uri, report(folder, second), folder)
    registered.client(uri).set_registered_model_alias("served", "mine", "2")
    found = registry.history(uri, "served")
    assert [past.version for past in found] == [str(number) for number in range(11, 0, -1)]
    assert {past.version: past.aliases for past in found if past.aliases} == {"11": ("champion",), "2": ("mine",)}
    assert len({past.recipe for past in found}) == 11


def test_the_same_recipe_has_the_same_digits_wherever_and_beside_whatever_it_ran(uri: str, folder: Path) -> None:
    registry.record(uri, report(folder), folder)
    other = {"seed": 1, "registry": {"name": "served", "uri": "x"}, "proved_on": "y", "baseline": {"model": "z"}}
    changed = replace(report(folder, 2), recipe=other, model=r.Original("net", "other", 1, 1, 1, 1, 17))
    registry.record(uri, changed, folder)
    two, one = registry.history(uri, "served")
    assert (two.version, one.version, two.recipe) == ("2", "1", one.recipe)


def test_too_few_samples_make_no_upper_limit(uri: str, folder: Path) -> None:
    registry.record(uri, report(folder, p99_high_ms=None), folder)
    (found,) = registry.history(uri, "served")
    assert (found.p99_ms, found.p99_high_ms) == (31.5, None)


def test_a_rung_that_was_not_measured_has_no_times(uri: str, folder: Path) -> None:
    one = report(folder)
    bare = replace(one, trials=(replace(one.trials[0], measurement=None),))
    registry.record(uri, bare, folder)
    (found,) = registry.history(uri, "served")
    assert (found.p99_ms, found.p99_high_ms, found.speedup, found.score) == (None, None, None, None)
    assert found.size_bytes


def test_versions_from_before_and_by_others_are_shown_as_far_as_they_are_known(uri: str, folder: Path) -> None:
    registry.record(uri, report(folder), folder)
    client = registered.client(uri)
    for tag in ("recipe", "metric", "cpu", "chosen", "verdict", "size_bytes"):
        client.delete_model_version_tag("served", "1", f"compressor.{tag}")
    client.create_model_version("served", str(folder))  # by hand: no run, no tags
    client.set_model_version_tag("served", "2", "compressor.size_bytes", "many")
    by_hand, old = registry.history(uri, "served")
    for past, aliases in ((by_hand, ()), (old, ("champion",))):
        known = replace(past, version="", made=datetime(2026, 1, 1, tzinfo=UTC))
        nothing = dict.fromkeys(("rung", "size_bytes", "p99_ms", "p99_high_ms", "speedup"))
        more = dict.fromkeys(("metric", "score", "verdict", "recipe", "cpu"))
        assert known == registry.Past("", aliases, datetime(2026, 1, 1, tzinfo=UTC), **nothing, **more, verified={})


def test_a_version_whose_run_is_gone_keeps_what_stands_in_its_tags(uri: str, folder: Path) -> None:
    import sqlite3

    found = registry.record(uri, report(folder), folder)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        for table in ("latest_metrics", "metrics", "params", "tags", "runs"):
            database.execute(f"DELETE FROM {table} WHERE run_uuid = ?", (found.run_id,))  # noqa: S608
    database.close()
    (past,) = registry.history(uri, "served")
    assert (past.rung, past.verdict, past.p99_ms, past.score) == ("int8", "pass", None, None)


def test_what_verifying_found_stands_by_machine(uri: str, folder: Path) -> None:
    registry.record(uri, report(folder), folder)
    client = registered.client(uri)
    client.set_model_version_tag("served", "1", "verified.server_a", "pass on 2026-03-05, p99 40 ms")
    client.set_model_version_tag("served", "1", "verified.server_b", "fail on 2026-03-05")
    (past,) = registry.history(uri, "served")
    assert past.verified == {"server_a": "pass on 2026-03-05, p99 40 ms", "server_b": "fail on 2026-03-05"}


@pytest.mark.parametrize("name", ["other", "o'ther", "a/b", "", "\x1b[2J"])
def test_a_name_that_is_not_there_is_refused_with_what_is(uri: str, folder: Path, name: str) -> None:
    registry.record(uri, report(folder), folder)
    with pytest.raises(InputError, match="no model of that name has a version; there is served") as caught:
        registry.history(uri, name)
    assert "\x1b" not in str(caught.value)


def test_an_empty_registry_says_so(uri: str) -> None:
    with pytest.raises(InputError, match="served: no model of that name has a version; nothing is registered there"):
        registry.history(uri, "served")


def test_a_registry_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no registry at sqlite:///.*none\.db; name another one"):
        registry.history(f"sqlite:///{tmp_path}/none.db", "served")
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(MachineError, match=r"http://127\.0\.0\.1:9"):
        registry.history("http://127.0.0.1:9", "served")
