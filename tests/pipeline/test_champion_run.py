"""Whole runs beside the registered champion: what follows it, what is refused and why, and where the alias stands."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import planted
import pytest
import registered
import small
import whole_run
from whole_run import Ended

from compressor import formats, gates, isolation, machine, recipe, registry, runtime, schemes
from compressor.console import follow
from compressor.errors import RungError
from compressor.gates import speed
from compressor.pipeline import Request, champion, measuring, prepare, publish, quality, run
from compressor.plan import Job

pytestmark = registered.NOISE
INT8 = "rungs: [{name: int8, stages: [{quantize: {scheme: static}}]}]\nlimits: {measure: 3s}\n"
PLAIN = f"{INT8}gates: [{{accuracy: {{max_drop: 8%}}}}]\n"
SIZED = f"{INT8}gates: [{{accuracy: {{max_drop: 8%}}}}, {{size: {{max: 5MB}}}}]\n"
HALF = "baseline: {model: 'models:/net@champion', tolerance: {speed: 100%}}\n"
"""Twice as long is allowed: these models take so little time that anything may look like a few per cent."""
Run = Callable[..., Ended]


@pytest.fixture
def uri(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gates, "regression", lambda _before, _now: None)  # INT8 of a small model is no faster
    monkeypatch.setattr(speed, "busy", lambda _moment: False)  # whatever else runs beside the tests
    yield from registered.empty(tmp_path_factory, tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = small.classifier(tmp_path / "net.onnx")
    (tmp_path / "calibration_data").mkdir()
    small.data(tmp_path / "calibration_data" / "net.npz", path, 600, seed=1)
    return path


@pytest.fixture
def go(uri: str, model: Path) -> Run:
    """Give a function that runs the command with a recipe, each time into a folder of its own."""
    outputs = iter(range(100))

    def go(text: str = SIZED, *words: object) -> Ended:
        (model.parent / "r.yaml").write_text(text)
        output = model.parent / f"out{next(outputs)}"
        registry = () if "--registry" in words else ("--registry", uri)
        return whole_run.compress(
            "run", model, "--recipe", model.parent / "r.yaml", "--output", output, *registry, *words
        )

    return go


def verdicts(ended: Ended, rung: str = "int8") -> Mapping[str, Mapping[str, Any]]:
    return {verdict["gate"]: verdict for verdict in ended.trials[rung]["verdicts"]}


def met(ended: Ended) -> dict[str, bool | None]:
    """Give how the champion's gates judged."""
    return {gate: v["met"] for gate, v in verdicts(ended).items() if gate.startswith("champion")}


def relabelled(model: Path, seed: int) -> None:
    """Train it again, as it were: other weights, and data that these are right on."""
    small.classifier(model, seed)
    small.data(model.parent / "calibration_data" / "net.npz", model, 600, seed=1)


def test_the_first_run_has_nothing_to_be_held_against_and_becomes_the_champion(go: Run, uri: str) -> None:
    ended = go(SIZED, "--against", "models:/net@champion")
    assert ended.code == 0
    assert (ended.report["champion"], ended.trials["int8"]["beside"]) == (None, None)
    assert met(ended) == {}
    told = "models:/net@champion: there is no such version yet, so that nothing is held against it"
    assert told in ended.report["warnings"]
    assert registered.aliases(uri) == {"champion": "1"}
    assert ended.report["registry"]["alias"] == "champion"


def test_the_same_again_is_the_champion_itself_and_confirms_it(go: Run, uri: str) -> None:
    go()
    ended = go(SIZED, "--against", "models:/net@champion")
    assert ended.code == 0
    assert met(ended) == {"champion": True}
    beside = ended.trials["int8"]["beside"]
    assert (beside["same"], beside["champion"], beside["now"], beside["score"]) == (True, None, None, None)
    assert ended.report["champion"]["version"] == "1"
    assert ended.report["recipe"]["baseline"]["model"] == "models:/net/1"
    assert (ended.report["registry"]["version"], ended.report["registry"]["confirmed"]) == ("1", True)
    assert registered.aliases(uri) == {"champion": "1"}
    assert ended.folder
    assert "it is the champion itself, byte for byte" in (ended.folder / "report.md").read_text()


def test_a_version_that_is_slower_is_refused(go: Run, uri: str, model: Path) -> None:
    go(PLAIN)
    planted.slower(model)
    ended = go(PLAIN + HALF)
    assert ended.code == 3
    assert met(ended) == {"champion speed": False, "champion accuracy": True}
    speed = verdicts(ended)["champion speed"]
    assert speed["limit"] == 0.5
    assert speed["high"] < 0.5
    assert (ended.report["verdict"], ended.report["chosen"]) == ("fail", None)
    assert "champion speed not met" in ended.err
    assert registered.aliases(uri) == {"champion": "1"}
    assert list(registered.versions(uri)) == ["1"]
    beside = ended.trials["int8"]["beside"]
    assert beside["now"]["latency"]["p50_ms"] > 2 * beside["champion"]["latency"]["p50_ms"]
    assert ended.folder
    assert "## Beside the champion" in (ended.folder / "report.md").read_text()


def right(path: Path, options: str, data: Path, chosen: np.ndarray) -> float:
    """Give the share of labels that a model's argmax is, by ONNX Runtime and numpy alone."""
    archive = np.load(data)
    logits = np.concatenate(
        [whole_run.opened(path, options).run(None, {"x": x[None]})[0] for x in archive["x"][chosen]]
    )
    return float((logits.argmax(axis=1) == archive["label"][chosen]).mean())


def test_a_version_that_is_worse_is_refused_though_it_loses_nothing_against_its_own_original(
    go: Run, uri: str, model: Path
) -> None:
    first = go(PLAIN)
    planted.worse(model, 0.8)
    ended = go(PLAIN + HALF)
    assert ended.code == 3
    assert met(ended) == {"champion speed": True, "champion accuracy": False}
    assert verdicts(ended)["accuracy"]["met"] is True
    assert abs(verdicts(ended)["accuracy"]["observed"]) < 0.05, "its own original is as bad"
    accuracy = verdicts(ended)["champion accuracy"]
    assert accuracy["limit"] == 0.08
    beside = ended.trials["int8"]["beside"]
    champion = first.trials["int8"]["measurement"]["score"]["value"]
    now = ended.trials["int8"]["measurement"]["score"]["value"]
    assert (beside["champion_score"]["value"], beside["score"]["value"]) == (champion, now)
    assert accuracy["observed"] == pytest.approx(champion - now)
    assert accuracy["observed"] > 0.1
    every = np.arange(600)
    data = model.parent / "calibration_data" / "net.npz"
    paths = [each.artifacts()["int8"] for each in (first, ended)]
    one, other = (right(path, whole_run.KERNELS, data, every) for path in paths)
    assert one - other == pytest.approx(accuracy["observed"], abs=0.06), "of all samples, not of those that are scored"
    assert "champion accuracy not met" in ended.err
    assert registered.aliases(uri) == {"champion": "1"}


def test_a_version_that_is_bigger_is_refused_where_a_gate_asks_for_its_size(go: Run, uri: str, model: Path) -> None:
    first = go()
    planted.bigger(model)
    asked = HALF.replace("speed: 100%", "speed: 100%, size: 13%")
    refused = go(SIZED + asked)
    assert refused.code == 3
    size, before = verdicts(refused)["champion size"], first.artifacts()["int8"].stat().st_size
    assert (size["met"], size["observed"], size["limit"]) == (
        False,
        refused.artifacts()["int8"].stat().st_size,
        before * 113 // 100,
    )
    assert met(refused)["champion accuracy"] is True
    assert "champion size not met" in refused.err
    assert registered.aliases(uri) == {"champion": "1"}
    fine = go(PLAIN + HALF)
    assert (fine.code, met(fine)) == (0, {"champion speed": True, "champion accuracy": True})
    assert registered.aliases(uri) == {"champion": "2"}


def test_a_better_version_becomes_the_champion(go: Run, uri: str, model: Path) -> None:
    kept = shutil.copy(model, model.with_name("kept"))
    planted.slower(planted.worse(model, 0.8))
    assert go(PLAIN).code == 0
    shutil.copy(kept, model)
    ended = go(PLAIN, "--against", "models:/net@champion")
    assert ended.code == 0
    assert met(ended) == {"champion speed": True, "champion accuracy": True}
    assert verdicts(ended)["champion speed"]["low"] > 2
    assert verdicts(ended)["champion accuracy"]["observed"] < -0.1
    assert registered.aliases(uri) == {"champion": "2"}
    assert ended.report["registry"]["alias"] == "champion"


def test_a_rung_that_misses_another_gate_is_not_held_against_the_champion(go: Run, model: Path) -> None:
    go(PLAIN)
    planted.slower(model)
    ended = go(f"{INT8}gates: [{{size: {{max: 1kB}}}}]\n{HALF}")
    assert ended.code == 3
    assert (met(ended), ended.trials["int8"]["beside"]) == ({}, None)
    assert ended.report["champion"]["version"] == "1"


def unlabelled(model: Path) -> None:
    data = model.parent / "calibration_data" / "net.npz"
    np.savez(data, x=np.load(data)["x"])


def test_without_labels_a_model_that_was_trained_again_is_undecided(go: Run, uri: str, model: Path) -> None:
    unlabelled(model)
    assert go(PLAIN).code == 0
    planted.worse(model, 0.05)
    ended = go(PLAIN + HALF)
    assert ended.code == 4
    assert met(ended) == {"champion speed": True, "champion accuracy": None}
    assert verdicts(ended)["champion accuracy"]["reason"] == (
        "models:/net/1 was made of another model, and agreement compares with the original's outputs, which says "
        "nothing between the two: give labels"
    )
    assert registered.aliases(uri) == {"champion": "1"}


def test_without_labels_another_way_of_compressing_the_same_model_is_held_against_it(
    go: Run, uri: str, model: Path
) -> None:
    unlabelled(model)
    first = go(PLAIN)
    other = PLAIN.replace("{scheme: static}", "{scheme: static, ranges: percentile}")
    ended = go(other + HALF)
    beside, now = ended.trials["int8"]["beside"], ended.trials["int8"]["measurement"]["score"]
    assert beside["same"] is False
    assert beside["champion_score"]["value"] == first.trials["int8"]["measurement"]["score"]["value"]
    assert beside["score"]["value"] == now["value"]
    assert beside["score"]["drop"] == pytest.approx(beside["champion_score"]["value"] - now["value"])
    assert ended.code in {0, 3}
    assert registered.aliases(uri) == {"champion": "2" if ended.code == 0 else "1"}


def test_without_any_data_nothing_is_said_of_the_score(go: Run, model: Path) -> None:
    go(PLAIN)
    shutil.rmtree(model.parent / "calibration_data")
    planted.worse(model, 0.1)
    text = INT8.replace("static", "weights") + "gates: [{macs: {max: 1G}}]\n"
    ended = go(text + HALF)
    assert ended.code == 4
    assert verdicts(ended)["champion accuracy"]["reason"] == "no evaluation data: give --evaluation"


def test_a_champion_that_crashes_costs_the_comparison_and_no_rung(
    go: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go()
    planted.worse(model, 0.05)

    def crashing(*_arguments: Any, **_more: Any) -> Any:
        raise RungError("the process was killed by SIGSEGV")
        yield

    monkeypatch.setattr(measuring, "side_by_side", crashing)
    ended = go(f"{SIZED}{HALF}")
    assert ended.code == 4
    speed = verdicts(ended)["champion speed"]
    assert (speed["met"], speed["reason"]) == (
        None,
        "the rung and models:/net/1 cannot be measured: the process was killed by SIGSEGV",
    )
    assert met(ended)["champion accuracy"] is True


def test_a_champion_that_crashes_over_the_samples_costs_the_comparison_and_no_rung(
    go: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go()
    planted.worse(model, 0.05)
    recorded = quality.recorded

    def crashing(built: Any, scoring: Any, run: Path, folder: Path) -> Any:
        if folder.name == "champion-outputs":
            raise RungError("the process was killed by SIGSEGV")
        return (yield from recorded(built, scoring, run, folder))

    monkeypatch.setattr(quality, "recorded", crashing)
    ended = go(f"{SIZED}{HALF}")
    assert ended.code == 4
    found = verdicts(ended)["champion accuracy"]
    assert found["met"] is None
    assert found["reason"].endswith("the champion cannot be scored: the process was killed by SIGSEGV")
    assert met(ended)["champion speed"] is True


def test_the_original_meets_the_champion_only_where_no_rung_is_enough(
    go: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go()
    planted.worse(model, 0.05)
    held: list[str] = []
    contested = champion.Contest.held

    def seen(self: Any, steps: Any, rung: str, *rest: Any, **more: Any) -> Any:
        held.append(rung)
        return contested(self, steps, rung, *rest, **more)

    monkeypatch.setattr(champion.Contest, "held", seen)
    assert go(f"{SIZED}{HALF}").code == 0
    assert held == ["int8"]
    held.clear()
    strict = "baseline: {model: 'models:/net@champion', tolerance: {speed: 100%, size: 1%}}\n"
    ended = go(f"{SIZED}{strict}", "--max-drop", "8%") if planted.bigger(model) else None
    assert ended
    assert held == ["int8", "baseline"]
    assert {v["gate"]: v["met"] for v in ended.report["baseline"]["verdicts"]}["champion size"] is False
    assert (ended.code, ended.report["chosen"]) == (3, None)


def test_of_another_machine_the_champion_is_scored_as_the_rungs_are(
    go: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels of this CPU say nothing of a target elsewhere: both sides are of exact arithmetic."""
    go()
    planted.worse(model, 0.05)
    opened: list[Any] = []
    outputs = quality._outputs

    def seen(built: Any, *rest: Any) -> Any:
        opened.append(built.artifact.options)
        return outputs(built, *rest)

    monkeypatch.setattr(quality, "_outputs", seen)
    there = next(name for name in ("arm-dotprod", "x86-vnni") if name != schemes.of(machine.isa()).name)
    ended = go(f"{SIZED}{HALF}target: {there}\n")
    assert len(opened) >= 3
    assert all(runtime.emulated(options) == options for options in opened)
    assert met(ended)["champion accuracy"] is True
    assert met(ended)["champion speed"] is None
    assert ended.code == 4


@pytest.mark.parametrize(
    ("against", "told"),
    [
        ("models:/net@champoin", "models:/net@champoin: there is no such version"),
        ("models:/net/7", r"models:/net/7: 'net' has no such version; there is @champion, /1"),
        ("models:/other@champion", "models:/other@champion: there is no such version"),
        ("models:/other/1", "models:/other/1: there is no such version"),
        ("net@champion", "--against: model: expected models:/NAME@ALIAS or models:/NAME/VERSION, found 'net@champion'"),
    ],
)
def test_a_champion_that_is_not_there_is_refused_before_any_work(go: Run, uri: str, against: str, told: str) -> None:
    go()
    ended = go(SIZED, "--against", against)
    assert (ended.code, ended.folder) == (2, None)
    assert told in ended.err
    assert registered.aliases(uri) == {"champion": "1"}


def test_without_a_registry_there_is_no_champion(go: Run) -> None:
    ended = go(SIZED, "--against", "models:/net@champion", "--registry", "none")
    assert ended.code == 2
    assert "looked up in a registry, and there is none: give --registry URI" in ended.err


def test_a_champion_with_other_inputs_is_refused(go: Run, model: Path) -> None:
    go()
    proto = onnx.load(model)
    for node in proto.graph.node:
        node.input[:] = ["pixels" if name == "x" else name for name in node.input]
    proto.graph.input[0].name = "pixels"
    onnx.save(proto, model)
    data = model.parent / "calibration_data" / "net.npz"
    archive = np.load(data)
    np.savez(data, pixels=archive["x"], label=archive["label"])
    ended = go(SIZED, "--against", "models:/net@champion")
    assert (ended.code, ended.folder) == (2, None)
    assert "expected the inputs pixels, found x" in ended.err


def test_a_champion_that_is_an_engine_is_refused(go: Run, uri: str, tmp_path: Path) -> None:
    go()
    client = registered.client(uri)
    folder = tmp_path / "engine"
    folder.mkdir()
    for name in ("engine.json", "model.engine", "MLmodel"):
        (folder / name).write_text("{}")
    client.create_model_version("net", str(folder))
    client.set_registered_model_alias("net", "champion", "2")
    ended = go(SIZED, "--against", "models:/net@champion")
    assert (ended.code, ended.folder) == (2, None)
    assert "holds engines of TensorRT, which are not measured by themselves" in ended.err


def test_session_options_that_differ_are_told(go: Run, model: Path) -> None:
    go(PLAIN, "--threads", 1)
    planted.worse(model, 0.05)
    ended = go(PLAIN + HALF, "--threads", 2)
    told = "models:/net/1 is run with the session options that it is served with: intra_op_num_threads 1 (here 2)"
    assert told in ended.report["warnings"]
    assert ended.report["champion"]["artifact"]["options"]["intra_op_num_threads"] == "1"


def test_the_same_bytes_with_other_options_are_not_the_champion_itself(go: Run) -> None:
    go(PLAIN, "--threads", 1)
    ended = go(PLAIN + HALF, "--threads", 2)
    assert ended.trials["int8"]["beside"]["same"] is False
    assert met(ended)["champion accuracy"] is True
    assert ended.trials["int8"]["beside"]["score"]["drop"] == 0


def test_where_somebody_else_moves_the_alias_meanwhile_a_candidate_is_left(
    go: Run, uri: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(PLAIN)
    planted.worse(model, 0.1)
    go(PLAIN)
    registry.promote(uri, "net", "1", force=False)
    planted.worse(model, 0.1)
    monkeypatch.setattr(isolation, "call", whole_run.call_here)
    asked = recipe.parse(f"{PLAIN}{HALF}registry: {{uri: '{uri}'}}", "r")
    request = Request(Job(model, asked, model.parent / "late", model.parent))
    settled = follow(prepare(request), quiet=True)
    assert settled.champion is not None
    assert str(settled.champion.version) == "models:/net/1"
    registry.promote(uri, "net", "2", force=False)
    done = follow(publish(follow(run(settled, request), quiet=True)), quiet=True)
    found = done.report.registry
    assert found is not None
    assert (done.report.verdict, found.version, found.alias) == ("pass", "3", "candidate")
    assert found.note == "version 2 is the champion now, beside which it was not measured: run again against it"
    assert registered.aliases(uri) == {"champion": "2", "candidate": "3"}
    assert formats.read(done.folder / "report.json").registry == found


def test_a_run_elsewhere_registers_a_candidate_and_says_so(go: Run, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_name", lambda: "A Laptop [7]")
    ended = go(f"{PLAIN}proved_on: 'A Server*'\n")
    assert ended.code == 0
    assert (
        "this machine is 'A Laptop [7]', and the recipe is proved on 'A Server*': what passes here is a candidate, "
        "until `compress verify` proves it there"
    ) in ended.report["warnings"]
    assert ended.report["registry"]["alias"] == "candidate"
    assert ended.report["registry"]["note"] == (
        "measured on A Laptop [7]: prove it on A Server*, with `compress verify`"
    )
    assert "no champion: measured on A Laptop [7]" in ended.err
    assert registered.aliases(uri) == {"candidate": "1"}
    again = go(f"{PLAIN}proved_on: 'a laptop [7]'\n")
    assert again.report["registry"]["alias"] == "champion"
    assert registered.aliases(uri) == {"champion": "1"}
