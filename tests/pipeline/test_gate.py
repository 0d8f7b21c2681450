"""A report that is judged again: the same by the same gates, and by others as its numbers say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import small
import whole_run
from whole_run import Ended

from compressor import formats, recipe
from compressor.errors import InputError, RungError
from compressor.pipeline import GOING_ON, Gated, gate, work
from compressor.records import Artifact, Beside, Bound, Report, Score, Served, Size, Speedup, Trial

STATIC = "{quantize: {scheme: static}}"
RUNGS = f"""
rungs:
  - {{name: int8, stages: [{STATIC}]}}
  - {{name: broken, stages: [{{quantize: {{scheme: dynamic}}}}]}}
  - {{name: fused, stages: [{STATIC}, fuse]}}
limits: {{measure: 400ms}}
registry: {{uri: none}}
"""
GATES = {
    "pass": "gates: [{latency: {p50: 10s}}, {accuracy: {max_drop: 50%}}]",
    "slow": "gates: [{latency: {p99: 1us}}, {accuracy: {max_drop: 50%}}]",
    "small": "gates: [{size: {max: 1kB}}, {accuracy: {max_drop: 50%}}, {speedup: {min: 0.01x}}]",
    "few": "gates: [{latency: {p99.9: 10s}}, {accuracy: {max_drop: 50%, confidence: 95%}}]",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give the reports of runs that ended in many ways, each with a rung that could not be built."""
    home = tmp_path_factory.mktemp("gate")
    model = small.classifier(home / "net.onnx")
    (home / "calibration_data").mkdir()
    small.data(home / "calibration_data" / "net.npz", model, 200, seed=1)
    apply = work.apply

    def failing(stage: Any, *rest: Any) -> Any:
        if work.settings(stage).get("scheme") == "dynamic":
            raise RungError("no kernel for it")
        return (yield from apply(stage, *rest))

    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "apply", failing)
        patch.chdir(home)
        for name, gates in GATES.items():
            (home / "r.yaml").write_text(RUNGS + gates)
            ended = whole_run.compress("run", model, "--recipe", home / "r.yaml", "--output", home / name, "--all")
            assert ended.folder
            found[name] = ended.folder / "report.json"
    return found


def asked(path: Path, text: str = "") -> recipe.Recipe:
    """Give the report's own recipe, or another one."""
    return recipe.parse(text, "r") if text else recipe.of_report(formats.read(path).recipe, str(path))


def judged(path: Path, text: str = "", **more: Any) -> Report:
    return gate(Gated(path, asked(path, text), **more))


def edited(path: Path, folder: Path, change: Callable[[Report], Report]) -> Path:
    """Write a report with a change in it."""
    out = folder / "report.json"
    out.write_text(formats.render(change(formats.read(path)), "json"))
    return out


def outcome(report: Report) -> tuple[Any, ...]:
    trials = (report.baseline, *report.trials)
    return report.verdict, report.chosen, [(trial.rung, trial.verdicts) for trial in trials]


@pytest.mark.parametrize("name", list(GATES))
def test_the_same_gates_judge_the_same(made: dict[str, Path], name: str) -> None:
    report = formats.read(made[name])
    assert [trial.failure is None for trial in report.trials] == [True, False, True]
    again = judged(made[name])
    assert outcome(again) == outcome(report)
    assert (again.trials, again.baseline, again.recipe) == (report.trials, report.baseline, report.recipe)


def slowed(report: Report, **ratios: tuple[float, float, float]) -> Report:
    """Give a report in which rungs are as fast as that beside the baseline."""
    return replace(
        report,
        trials=tuple(
            replace(trial, measurement=replace(trial.measurement, speedup=Speedup(*ratios[trial.rung])))
            if trial.measurement and trial.rung in ratios
            else trial
            for trial in report.trials
        ),
    )


@pytest.mark.parametrize(
    ("int8", "fused", "chosen"),
    [
        ((1.5, 1.4, 1.6), (1.6, 1.5, 1.7), "int8"),
        ((0.5, 0.4, 0.6), (1.6, 1.5, 1.7), "fused"),
        ((0.5, 0.4, 0.6), (0.9, 0.8, 0.95), "baseline"),  # two slow ones do not make each other fast
        ((1.0, 0.9, 1.1), (1.6, 1.5, 1.7), "int8"),
    ],
)
def test_who_is_slower_than_the_one_before_it_is_judged_anew(
    made: dict[str, Path], tmp_path: Path, int8: Any, fused: Any, chosen: str
) -> None:
    path = edited(made["pass"], tmp_path, lambda report: slowed(report, int8=int8, fused=fused))
    again = judged(path)
    assert (again.verdict, again.chosen) == ("pass", chosen)


def bounded(report: Report, *bounds: Bound) -> Report:
    def timed(trial: Trial) -> Trial:
        if trial.measurement is None:
            return trial
        latency = replace(trial.measurement.latency, bounds=bounds, stalled=0.0)
        return replace(trial, measurement=replace(trial.measurement, latency=latency, speedup=Speedup(2, 1.9, 2.1)))

    return replace(report, baseline=timed(report.baseline), trials=tuple(map(timed, report.trials)))


P99 = Bound(99, 0.95, 30, 29, 31, limit_ms=50, violations=0, steady=True)


@pytest.mark.parametrize(
    ("sla", "verdict"),
    [
        ("p99: 50ms", "pass"),
        ("p99: 60ms", "pass"),  # laxer
        ("p95: 50ms", "pass"),  # a lower percentile of it
        ("p50: 31ms", "inconclusive"),  # bursts above 31 ms were not looked for
        ("p99: 40ms", "inconclusive"),
        ("p99: 28ms", "fail"),  # stricter than the lower limit
        ("p99.9: 28ms", "fail"),  # a higher percentile is no lower
        ("p99.9: 50ms", "inconclusive"),
        ("p95: 28ms", "inconclusive"),
        ("p99: 50ms, confidence: 90%", "pass"),
        ("p99: 50ms, confidence: 99%", "inconclusive"),
        ("p99: 60ms, reserve: 5ms", "pass"),
        ("p99: 60ms, reserve: 35ms", "fail"),
    ],
)
def test_another_budget_is_judged_by_what_its_numbers_prove(
    made: dict[str, Path], tmp_path: Path, sla: str, verdict: str
) -> None:
    path = edited(made["pass"], tmp_path, lambda report: bounded(report, P99))
    found = judged(path, f"gates: [{{latency: {{{sla}}}}}, {{accuracy: {{max_drop: 50%}}}}]")
    assert found.verdict == verdict
    assert found.recipe["gates"][0]["latency"].keys() >= {sla.partition(":")[0]}


def test_a_stricter_drop_is_judged_by_the_score_that_was_measured(made: dict[str, Path], tmp_path: Path) -> None:
    def scored(report: Report) -> Report:
        first = report.trials[0]
        assert first.measurement
        score = replace(first.measurement.score, drop=0.02)  # type: ignore[type-var]
        first = replace(first, measurement=replace(first.measurement, score=score, speedup=Speedup(2, 1.9, 2.1)))
        return replace(report, trials=(first, report.trials[1]))

    path = edited(made["pass"], tmp_path, scored)
    for most, met in (("3%", True), ("2%", True), ("1%", False)):
        found = judged(path, f"gates: [{{accuracy: {{max_drop: {most}}}}}]")
        assert found.trials[0].verdicts[0].met is met
        assert found.chosen == ("int8" if met else "baseline")


def test_what_was_not_measured_is_undecided(made: dict[str, Path]) -> None:
    found = judged(made["pass"], "gates: [{startup: {max: 10s}}, {throughput: {min: 1/s, at: {batch: 8}}}]")
    assert (found.verdict, found.chosen) == ("inconclusive", None)
    assert {verdict.met for verdict in found.trials[0].verdicts if verdict.gate.startswith(("start", "thr"))} == {None}


def test_the_change_of_choice_is_told(made: dict[str, Path], tmp_path: Path) -> None:
    path = edited(made["pass"], tmp_path, lambda report: bounded(report, P99))
    found = judged(path, "gates: [{latency: {p99: 28ms}}]")
    before = formats.read(path).chosen
    assert f"by these gates nothing would be chosen; the run chose {before}" in found.warnings


def test_rungs_that_were_not_climbed_are_named(made: dict[str, Path], tmp_path: Path) -> None:
    path = edited(made["pass"], tmp_path, lambda report: replace(bounded(report, P99), trials=report.trials[:1]))
    found = judged(path, "gates: [{size: {max: 1B}}]")
    assert "not climbed in that run: broken, fused; run again by this recipe" in found.warnings


@pytest.mark.parametrize(("proved_on", "fits"), [("*", True), ("A CPU*", True), ("another", False)])
def test_a_report_from_other_hardware_is_refused_unless_that_is_asked_for(
    made: dict[str, Path],
    tmp_path: Path,
    proved_on: str,
    fits: bool,  # noqa: FBT001
) -> None:
    path = edited(
        made["pass"], tmp_path, lambda report: replace(report, environment=replace(report.environment, cpu="a cpu"))
    )
    text = f"{GATES['pass']}\nproved_on: '{proved_on}'"
    if fits:
        assert judged(path, text).verdict == "pass"
    else:
        with pytest.raises(InputError) as caught:
            judged(path, text)
        assert str(caught.value) == (
            f"{path}: was measured on 'a cpu', and the recipe is proved on 'another': run `compress verify {path}` "
            "there and judge that report, or give --any-hardware"
        )
    assert judged(path, text, any_hardware=True).verdict == "pass"


def test_a_run_that_is_going_on_is_not_judged(made: dict[str, Path], tmp_path: Path) -> None:
    path = edited(made["pass"], tmp_path, lambda report: replace(report, unfinished=GOING_ON))
    with pytest.raises(InputError, match="the run is going on, or was killed; wait for its end, or run again"):
        judged(path)


@pytest.mark.parametrize(("rungs", "chosen", "verdict"), [(1, "int8", "pass"), (0, None, "inconclusive")])
def test_a_run_that_was_cut_short_chooses_no_baseline(
    made: dict[str, Path], tmp_path: Path, rungs: int, chosen: str | None, verdict: str
) -> None:
    def cut(report: Report) -> Report:
        fast = slowed(report, int8=(2.0, 1.9, 2.1))
        return replace(fast, trials=fast.trials[:rungs], unfinished="stopped by SIGTERM", chosen=chosen)

    found = judged(edited(made["pass"], tmp_path, cut))
    assert (found.verdict, found.chosen) == (verdict, chosen)


SERVED = Served(
    "models:/net/3",
    "net",
    "3",
    Size(10**6, 1, 1, 1),
    Artifact("onnxruntime", "cpu", (), 0.0, {}),
    asked="models:/net@champion",
)


def held(report: Report, ratio: float) -> Report:
    """Give a report whose first rung was held against version 3, over which it has this speed-up."""
    report = slowed(report, int8=(2.0, 1.9, 2.1))
    first = report.trials[0]
    assert first.measurement
    now = replace(first.measurement, speedup=Speedup(ratio, ratio * 0.99, ratio * 1.01))
    scores = (Score("top1", 0.8, 400, 0.7, 0.9), Score("top1", 0.8, 400, 0.7, 0.9, 0.0, -0.01, 0.01))
    first = replace(first, beside=Beside(first.measurement, now, *scores))
    own = {**report.recipe, "baseline": {"model": "models:/net/3"}}
    return replace(report, trials=(first,), champion=SERVED, recipe=own)


def against(model: str, speed: str = "2%") -> str:
    return f"{GATES['pass']}\nbaseline: {{model: '{model}', tolerance: {{speed: {speed}}}}}"


@pytest.mark.parametrize(
    ("ratio", "tolerance", "met"), [(1.5, "2%", True), (0.8, "2%", False), (0.8, "30%", True), (0.8, "0%", False)]
)
def test_a_rung_is_judged_beside_the_champion_again(
    made: dict[str, Path],
    tmp_path: Path,
    ratio: float,
    tolerance: str,
    met: bool,  # noqa: FBT001
) -> None:
    path = edited(made["pass"], tmp_path, lambda report: held(report, ratio))
    for model in ("models:/net@champion", "models:/net/3"):
        found = judged(path, against(model, tolerance))
        verdicts = {verdict.gate: verdict.met for verdict in found.trials[0].verdicts}
        assert verdicts["champion speed"] is met
        assert (found.chosen == "int8") is met
        assert not any("not held against" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "model",
    [
        "models:/other@champion",
        "models:/net@production",
        "models:/net/latest",
        "models:/net/2",
        "models:/other/3",
        "models:/ne@champion",
    ],
)
def test_another_champion_than_the_one_of_the_run_decides_nothing(
    made: dict[str, Path], tmp_path: Path, model: str
) -> None:
    path = edited(made["pass"], tmp_path, lambda report: held(report, 1.5))
    found = judged(path, against(model))
    assert (found.verdict, found.chosen) == ("inconclusive", None)
    assert f"{model}: the run was not held against it: run again by this recipe" in found.warnings


MANY = f"{GATES['pass'][:-1]}, {{memory: {{max: 9GB}}}}, {{macs: {{max: 1G}}}}, {{size: {{max: 1GB}}}}]"
RUN, SHAPED = {"latency p50", "memory"}, {"latency p50", "memory", "macs", "accuracy"}
EVERY = {*SHAPED, "size"}


@pytest.mark.parametrize(
    ("more", "gates", "told"),
    [
        ("load: {poisson: {rate: 5/s}}", {"latency p50"}, "the recipe asks for the load Poisson arrivals 5/s"),
        ("shapes: {x: 2x3x8x8}", SHAPED, "the recipe asks for the shape of x 2x3x8x8, and"),
        ("engine: {onnxruntime: {threads: 7}}", RUN, "the recipe asks for engine.threads 7, and"),
        ("engine: {tensorrt: {devices: [a10g]}}", EVERY, "asks for the engine tensorrt, and onnxruntime was"),
        ("target: arm-dotprod", EVERY, "the recipe asks for the target arm-dotprod, and"),
        ("data: {metric: f1}", {"accuracy"}, "the recipe asks for the metric f1, and top1 was measured"),
        ("data: {evaluation: {path: other.npz}}", {"accuracy"}, "asks for the samples of other.npz, and net.npz was"),
        ("data: {evaluation: {samples: 5000}}", {"accuracy"}, "asks for a number of samples of 5000, and 100 was"),
        ("data: {alphabet: a.txt}", {"accuracy"}, "asks for the alphabet a.txt, and None was"),
        ("data: {preprocess: {mean: [1]}}", {"accuracy"}, "the recipe asks for the preprocessing"),
        (
            RUNGS.replace("static", "weights", 1),
            EVERY,
            "asks for int8: quantize.scheme weights, and static was measured",
        ),
        (
            f"rungs: [{{name: int8, stages: [{STATIC}, fuse]}}]",
            EVERY,
            "asks for int8 of quantize, fuse, and quantize was",
        ),
        (f"rungs: [{{name: other, stages: [{STATIC}]}}]", EVERY, "the recipe has no rung int8"),
        (
            f"rungs: [{{name: int8, stages: [{STATIC}], engine: {{onnxruntime: {{threads: 7}}}}}}]",
            RUN,
            "engine.threads 7",
        ),
        (RUNGS, set(), ""),
        ("seed: 3", set(), ""),
        ("data: {evaluation: {path: net.npz}}", set(), ""),
        ("load: closed", set(), ""),
    ],
)
def test_what_the_recipe_asks_otherwise_than_it_was_measured_is_undecided(
    made: dict[str, Path], more: str, gates: set[str], told: str
) -> None:
    found = judged(made["pass"], f"{MANY}\n{more}")
    verdicts = [verdict for verdict in found.trials[0].verdicts if verdict.gate in EVERY]
    assert {verdict.gate for verdict in verdicts} == EVERY
    for verdict in verdicts:
        assert (verdict.met is None) is (verdict.gate in gates)
        assert (told in verdict.reason) is (verdict.gate in gates) or not told


def test_nor_does_what_was_measured_otherwise_decide_beside_the_champion(made: dict[str, Path], tmp_path: Path) -> None:
    """Where the recipe's own gates need no clock, the contest does."""
    path = edited(made["pass"], tmp_path, lambda report: held(report, 1.5))
    text = "gates: [{size: {max: 1GB}}]\nbaseline: models:/net@champion\n"
    for more, met in (("", True), ("engine: {onnxruntime: {threads: 7}}", None)):
        found = {v.gate: v.met for v in judged(path, text + more).trials[0].verdicts}
        assert (found["champion speed"], found["champion size"], found["size"]) == (met, True, True)


def test_a_champion_that_the_run_never_saw_decides_nothing(made: dict[str, Path]) -> None:
    found = judged(made["pass"], against("models:/net@champion"))
    assert (found.verdict, found.chosen) == ("inconclusive", None)
    assert found.trials[0].verdicts[-1].gate in {"champion", "speed"}
    assert "models:/net@champion: the run was not held against it: run again by this recipe" in found.warnings


def test_where_there_was_no_champion_yet_none_is_missed(made: dict[str, Path], tmp_path: Path) -> None:
    def first(report: Report) -> Report:
        own = {**report.recipe, "baseline": {"model": "models:/net@champion"}}
        return replace(slowed(report, int8=(2.0, 1.9, 2.1)), recipe=own)

    path = edited(made["pass"], tmp_path, first)
    for text in ("", against("models:/net@champion")):
        found = judged(path, text)
        assert (found.verdict, found.chosen) == ("pass", "int8")
        assert not any("not held against" in warning for warning in found.warnings)
    assert judged(path, against("models:/net@production")).verdict == "inconclusive"


def test_a_proof_is_judged_by_what_was_to_be_proved(made: dict[str, Path], tmp_path: Path) -> None:
    from compressor.records import Verified

    def proof(report: Report) -> Report:
        first = Verified("report.json", "then", "a laptop", "pass", "int8")
        return replace(slowed(report, int8=(0.5, 0.4, 0.6)), trials=report.trials[:1], verifies=first)

    def slower(report: Report) -> Report:
        return replace(slowed(proof(report), int8=(0.5, 0.4, 0.6)), verdict="fail", chosen=None)

    found = judged(edited(made["pass"], tmp_path, slower))
    assert found.baseline.verdicts
    assert all(verdict.met for verdict in found.baseline.verdicts), "the original meets every gate"
    assert (found.verdict, found.chosen) == ("fail", None)
    assert not any("not climbed" in warning for warning in found.warnings)


def command(*words: object) -> Ended:
    return whole_run.compress("gate", *words)


def test_the_command_exits_with_the_verdict_and_writes_nothing_else(made: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(made["pass"].parent, run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    path = edited(run / "report.json", run, lambda report: bounded(report, P99))
    before[path] = path.read_bytes()
    found = {sla: command(path, "--sla", sla).code for sla in ("60ms", "40ms", "28ms")}
    assert found == {"60ms": 0, "40ms": 0, "28ms": 3}
    junit = tmp_path / "junit.xml"
    ended = command(path, "--sla", "28ms", "--junit", junit, "--json")
    assert ended.code == 3
    assert json.loads(ended.out[ended.out.index("{") :])["verdict"] == "fail"
    (suite,) = ET.parse(junit).getroot().iter("testsuite")  # noqa: S314 - our own
    assert int(suite.get("failures", "0")) > 0
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_the_command_takes_the_gates_of_a_recipe(made: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("gates: [{size: {max: 1B}}]\n")
    ended = command(made["pass"], "--recipe", tmp_path / "r.yaml")
    assert ended.code == 3
    assert "size" in ended.out
    (tmp_path / "r.yaml").write_text("gates: [{size: {max: 1GB}}]\nproved_on: 'no such CPU'\n")
    refused = command(made["pass"], "--recipe", tmp_path / "r.yaml")
    assert refused.code == 2
    assert "--any-hardware" in refused.err
    assert command(made["pass"], "--recipe", tmp_path / "r.yaml", "--any-hardware").code == 0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema_version": 1}', '{"schema_version": 2}'])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    assert command(tmp_path / "report.json").code == 2
    assert command(tmp_path / "none.json").code == 2
