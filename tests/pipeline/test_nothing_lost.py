"""What a run made serves the next one, and what ends a run before its time takes nothing of that away."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import small
import whole_run
from filelock import FileLock
from onnx import numpy_helper

from compressor import formats, isolation, plan, recipe, workspace
from compressor.console import follow, views
from compressor.errors import CompressorError, CutOffError, InputError, MachineError, RungError, Stopped
from compressor.isolation import Limits, WorkError
from compressor.pipeline import Request, Result, prepare, reuse, run, search, steps, work
from compressor.pipeline.making import Making, Place, home
from compressor.pipeline.steps import Steps
from compressor.plan import Job, Plan
from compressor.records import Progress, Report, Speedup, Trial
from compressor.workspace import Store

run_module = sys.modules["compressor.pipeline.run"]  # the name in its package is that of the function
GATES = "gates: [{size: {max: 1MB}}, {accuracy: {max_drop: 50%}}]\nlimits: {measure: 200ms}\nregistry: {uri: none}\n"
STATIC = "{quantize: {scheme: static}}"
TWO = f"rungs: [{{name: int8, stages: [{STATIC}]}}, {{name: fused, stages: [{STATIC}, fuse]}}]\n{GATES}"
OPEN = f"rungs: [{{name: int8, stages: [quantize]}}]\n{GATES}"
MAKING = {"normalise", "apply", "candidates", "look"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = small.classifier(tmp_path / "net.onnx")
    (tmp_path / "calibration_data").mkdir()
    small.data(tmp_path / "calibration_data" / "net.npz", path, 120, seed=1)
    return path


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let pieces of work run in this process, and give their names as they are called.

    Every way of quantizing seems twice as fast: which wins by the clock is no matter of these tests.
    """
    names: list[str] = []

    def timed(*_: object) -> Iterator[Progress]:
        yield Progress("look")
        return Speedup(2.0, 1.9, 2.1)  # type: ignore[return-value]

    def call(piece: Callable[..., Any], *args: object, **how: object) -> Any:
        names.append(piece.__name__)
        return (yield from whole_run.call_here(piece, *args, **how))

    monkeypatch.setattr(isolation, "call", call)
    monkeypatch.setattr(search, "_timed", timed)
    return names


def request(model: Path, text: str = TWO) -> Request:
    return Request(Job(model, recipe.parse(text, "r.yaml"), model.parent / "reports", model.parent), every=True)


def go(model: Path, text: str = TWO) -> Result:
    asked = request(model, text)
    settled = follow(prepare(asked), quiet=True)
    return follow(run(settled, asked), quiet=True)


def report_of(model: Path) -> tuple[Report, Path]:
    """Give the report of the run that was made last."""
    folder = max((model.parent / "reports" / "net").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return formats.read(folder / "report.json"), folder


def hashes(result: Result) -> dict[str, str]:
    trials = (result.report.baseline, *result.report.trials)
    return {trial.rung: trial.artifacts[0].files[0].sha256 for trial in trials if trial.artifacts}


def is_whole(report: Report, folder: Path) -> None:
    for trial in (report.baseline, *report.trials):
        for file in (file for artifact in trial.artifacts for file in artifact.files):
            assert small_sha256(folder / file.path) == file.sha256
            onnx.checker.check_model(folder / file.path)
            assert json.loads((folder / file.path).with_name("session.json").read_text())
    assert all((folder / path).stat().st_size for path in report.raw.values())


def small_sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("text", [TWO, OPEN], ids=["settled", "open"])
def test_a_second_run_takes_every_stage_from_the_first_and_measures_afresh(
    model: Path, called: list[str], text: str
) -> None:
    first = go(model, text)
    made, measured = MAKING & set(called), [name for name in called if name not in MAKING]
    assert made == (MAKING if text == OPEN else {"normalise", "apply"})
    called.clear()
    second = go(model, text)
    assert called == measured, "plan, build, score, start, measure, profile: all but the making"
    assert hashes(second) == hashes(first)
    assert second.report.recipe == first.report.recipe
    for one, other in zip(first.report.trials, second.report.trials, strict=True):
        assert [replace(stage, reused=None, audit=None) for stage in other.stages] == [
            replace(stage, reused=None, audit=None) for stage in one.stages
        ]
        assert not any(stage.reused for stage in one.stages)
        assert all(stage.reused and stage.reused < second.report.started for stage in other.stages)
        assert one.measurement
        assert other.measurement
        assert one.measurement.latency != other.measurement.latency
    assert "made by an earlier run on" in formats.render(second.report, "md")
    assert formats.read(second.folder / "report.json") == second.report


def test_a_choice_whose_model_is_gone_is_made_again(model: Path, called: list[str]) -> None:
    first = go(model, OPEN)
    store = home(model.parent / "reports") / "store"
    value = {
        path: json.loads((path / "entry.json").read_text())["entry"] for path in store.glob("*") if path.name != "locks"
    }
    (choice,) = (path for path, body in value.items() if not body["files"])
    (made,) = (path for path in value if path.name == Path(value[choice]["value"]["made"]["model"]["path"]).parts[0])
    shutil.rmtree(made)
    called.clear()
    assert hashes(go(model, OPEN)).keys() == hashes(first).keys()
    assert called.count("look") > 1
    assert called.count("apply") == 1, "the other ways are there"


def test_what_a_run_made_itself_is_no_earlier_run_s(model: Path, called: list[str]) -> None:
    engine = "engine: {onnxruntime: {threads: 1}}"
    text = f"rungs: [{{name: a, stages: [{STATIC}]}}, {{name: b, stages: [{STATIC}], {engine}}}]\n{GATES}"
    report = go(model, text).report
    assert called.count("apply") == 1
    assert not any(stage.reused for trial in report.trials for stage in trial.stages)


def test_a_choice_with_a_way_that_was_cut_off_is_not_kept(
    model: Path, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))
    here = isolation.call

    def call(piece: Callable[..., Any], *args: object, **how: object) -> Any:
        if piece is work.apply and next(calls) == 0:
            raise CutOffError("stopped after 3s: raise limits.seconds")
        return (yield from here(piece, *args, **how))

    with monkeypatch.context() as patch:
        patch.setattr(isolation, "call", call)
        first = go(model, OPEN).report.trials[0].stages[-1]
    assert "stopped after 3s" in first.tried[0].why
    called.clear()
    second = go(model, OPEN).report.trials[0].stages[-1]
    assert not any("stopped" in way.why for way in second.tried)
    assert called.count("look") == len(second.tried)


def test_where_another_process_was_faster_its_model_is_taken(
    model: Path, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, taken = Store.put, []

    def faster(store: Store, key: str, made: Path, what: str, value: Any) -> bool:
        shutil.copytree(made, other := made.with_name("other"))
        assert put(store, key, other, what, {**value, "seconds": 12345.0})
        taken.append(key)
        return put(store, key, made, what, value)

    monkeypatch.setattr(Store, "put", faster)
    report = go(model).report
    assert taken
    assert all(stage.seconds == 12345.0 for trial in report.trials for stage in trial.stages)
    assert called.count("apply") == 2


HOSTILE = {
    "another's file": {"path": "../model.onnx"},
    "no key": {"path": "model.onnx"},
    "locks": {"path": "locks/model.onnx"},
    "nul": {"path": "a\0b/model.onnx"},
    "manifest": {"path": "KEY/entry.json"},
    "absolute": {"path": "/etc/passwd"},
}


@pytest.mark.parametrize("kind", [*HOSTILE, "settings", "types"])
def test_entries_that_nobody_here_wrote_are_made_again(model: Path, called: list[str], kind: str) -> None:
    first = go(model)
    for manifest in (home(model.parent / "reports") / "store").glob("*/entry.json"):
        body = json.loads(manifest.read_text())["entry"]
        if kind in HOSTILE:
            path = HOSTILE[kind]["path"].replace("KEY", manifest.parent.name)
            body["value"].get("made", {}).get("model", {})["path"] = path
        elif kind == "settings":
            body["value"]["settings"] = {"scheme": "no such", "more": 1}
        else:
            body["value"]["seconds"] = "long"
        text = json.dumps({"sha256": workspace.digest(json.dumps(body, sort_keys=True)), "entry": body})
        manifest.write_text(text)
    called.clear()
    second = go(model)
    assert hashes(second) == hashes(first)
    assert called.count("apply") == 2


@pytest.mark.parametrize("byte", [100, -100])
def test_a_damaged_entry_is_made_again_and_the_report_says_so(model: Path, called: list[str], byte: int) -> None:
    first = go(model)
    for file in home(model.parent / "reports").glob("store/*/model.onnx"):
        damaged = bytearray(file.read_bytes())
        damaged[byte] ^= 0x10
        file.write_bytes(damaged)
    called.clear()
    second = go(model)
    assert hashes(second) == hashes(first)
    assert called.count("apply") == 2
    assert sum("damaged or incomplete, and was made again" in warning for warning in second.report.warnings) == 3


def test_a_stage_that_fails_is_tried_again_by_the_next_rung_and_the_next_run(
    model: Path, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RungError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(work, "apply", broken)
        report = go(model).report
    assert [trial.failure and trial.failure.reason for trial in report.trials] == ["no luck", "no luck"]
    called.clear()
    assert all(trial.is_built for trial in go(model).report.trials)
    assert called.count("apply") == 2
    assert "normalise" not in called


def _plan(model: Path, text: str = TWO) -> Plan:
    return plan.make(request(model, text).job)


def _key(settled: Plan) -> str:
    place = Place(Path("run"), Path("scratch"), Path("home"))
    keep = Making(settled, place, Steps(Limits(), verbose=False)).keep
    return keep.store.key(*keep._given(), "x")


def _other_weights(model: Path) -> None:
    proto = onnx.load(model)
    bias = numpy_helper.to_array(proto.graph.initializer[-1]).copy()
    bias[0] += 1e-6
    proto.graph.initializer[-1].CopyFrom(numpy_helper.from_array(bias, "b3"))
    onnx.save(proto, model)


def _other_samples(model: Path) -> None:
    path = model.parent / "calibration_data" / "net.npz"
    with np.load(path) as arrays:
        x, label = arrays["x"].copy(), arrays["label"]
    x[0, 0, 0, 0] += 1
    np.savez(path, x=x, label=label)


def test_what_a_result_depends_on_tells_its_key(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settled = _plan(model)
    before, keys = _key(settled), []
    keys.append(_key(_plan(model, f"seed: 1\n{TWO}")))
    keys.append(_key(_plan(model, f"shapes: {{x: 2x3x8x8}}\n{TWO}")))
    keys.append(_key(_plan(model, f"engine: {{onnxruntime: {{threads: 1}}}}\n{TWO}")))
    keys.append(_key(replace(settled, steady=not settled.steady)))
    here = settled.environment
    others = ({"cpu": "another"}, {"isa": ("neon",)}, {"versions": {**here.versions, "onnxruntime": "0.1"}})
    keys += [_key(replace(settled, environment=replace(here, **other))) for other in others]  # type: ignore[arg-type]
    library = tmp_path / "ops.so"
    for content in (b"one", b"two"):
        library.write_bytes(content)
        keys.append(_key(replace(settled, recipe=settled.recipe.model_copy(update={"custom_ops": (library,)}))))
    with monkeypatch.context() as patch:
        patch.setattr(reuse, "_code_sha256", lambda: "another")
        keys.append(_key(settled))
    for change in (_other_weights, _other_samples):
        change(model)
        keys.append(_key(_plan(model)))
    assert len({before, *keys}) == 1 + len(keys)


def test_what_it_does_not_depend_on_leaves_its_key(model: Path, tmp_path: Path) -> None:
    before = _key(_plan(model))
    text = TWO.replace("max: 1MB", "max: 2MB").replace("200ms", "300ms").replace("name: int8", "name: other")
    assert _key(_plan(model, text)) == before
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "calibration_data").mkdir(parents=True)
    shutil.copy(model, elsewhere / "net.onnx")
    shutil.copy(model.parent / "calibration_data" / "net.npz", elsewhere / "calibration_data")
    assert _key(_plan(elsewhere / "net.onnx")) == before


def _at(number: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the piece of work with this number end as told; planning is number 0."""
    calls = iter(range(1000))

    def call(piece: Callable[..., Any], *args: object, **how: object) -> Iterator[Progress]:
        if next(calls) == number:
            yield Progress("half")
            raise error
        return (yield from whole_run.call_here(piece, *args, **how))

    monkeypatch.setattr(isolation, "call", call)


ENDS = {
    "signal": Stopped(15),
    "disk": MachineError("the disk: no space left"),
    "parent's disk": OSError(errno.ENOSPC, "No space left on device", "x"),
    "bug": WorkError("Traceback\nKeyError: 'x'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDS)
def test_whatever_ends_a_run_wherever_leaves_a_report_and_the_next_run_goes_on(
    model: Path, monkeypatch: pytest.MonkeyPatch, kind: str, called: list[str]
) -> None:
    undisturbed = hashes(go(model))
    n_calls = len(called)
    begun: set[str] = set()
    for number in range(1, n_calls):
        shutil.rmtree(model.parent / "reports")
        _at(number, ENDS[kind], monkeypatch)
        with pytest.raises((CompressorError, WorkError, Stopped)) as told:
            go(model)
        report, folder = report_of(model)
        is_whole(report, folder)
        assert report.unfinished
        assert report.unfinished in str(told.value) or isinstance(told.value, Stopped | WorkError)
        assert f"reported in {folder / 'report.md'}" in told.value.__notes__[-1]
        assert (report.verdict == "pass") == (report.chosen is not None)
        assert report.verdict != "fail"
        last = report.trials[-1] if report.trials else report.baseline
        assert last.failure is not None
        assert last.failure.reason == report.unfinished
        assert report.unfinished in (folder / "report.md").read_text()
        assert sorted(path.name for path in home(model.parent / "reports").iterdir()) in (["store"], [])
        begun.add(last.rung)
        told.value.__notes__.clear()
    assert begun == {"baseline", "int8", "fused"}
    monkeypatch.setattr(isolation, "call", whole_run.call_here)
    end = go(model)
    assert hashes(end) == undisturbed
    assert end.report.unfinished is None
    assert all(stage.reused for trial in end.report.trials for stage in trial.stages), "it was cut at its last step"


def test_a_rung_that_meets_every_gate_stays_chosen_when_the_run_ends_later(
    model: Path, monkeypatch: pytest.MonkeyPatch, called: list[str]
) -> None:
    go(model)
    shutil.rmtree(model.parent / "reports")
    _at(len(called) - 1, Stopped(2), monkeypatch)
    monkeypatch.setattr("compressor.gates.regression", lambda _rival, _trial: None)
    with pytest.raises(Stopped) as stopped:
        go(model)
    assert stopped.value.code == 130
    report, _ = report_of(model)
    assert (report.verdict, report.chosen, report.unfinished) == ("pass", "int8", "stopped by SIGINT")


def test_a_refused_model_or_sample_leaves_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at(2, InputError("the labels are wrong"), monkeypatch)
    with pytest.raises(InputError, match="the labels are wrong"):
        go(model)
    assert list((model.parent / "reports" / "net").iterdir()) == []


def test_a_baseline_that_would_do_is_not_chosen_before_the_rungs_were_tried(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _at(7, Stopped(15), monkeypatch)
    with pytest.raises(Stopped):
        go(model)
    report, _ = report_of(model)
    assert all(verdict.met for verdict in report.baseline.verdicts)
    assert (report.verdict, report.chosen) == ("inconclusive", None)


def test_a_bug_of_the_leading_process_leaves_a_report_too(
    model: Path, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("compressor.gates.implicit", broken)
    with pytest.raises(ZeroDivisionError) as told:
        go(model)
    report, folder = report_of(model)
    assert report.unfinished == "by zero"
    assert str(folder / "report.md") in told.value.__notes__[-1]
    assert called


def test_a_signal_while_the_last_word_is_written_waits_for_it(
    model: Path, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = run_module.write

    def write(result: Result) -> None:
        if result.report.unfinished is None:
            signal.raise_signal(signal.SIGTERM)
        written(result)

    def stop(number: int, _frame: object) -> None:
        raise Stopped(number)

    monkeypatch.setattr(run_module, "write", write)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(Stopped) as stopped:
            go(model)
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)
    report, folder = report_of(model)
    assert report.unfinished is None
    assert f"the run is done, and reported in {folder / 'report.md'}" in stopped.value.__notes__
    assert called


def test_waiting_for_another_run_ends_with_the_time_of_the_run(model: Path, called: list[str]) -> None:
    asked = request(model, TWO.replace("measure: 200ms", "measure: 200ms, run: 4s"))
    settled = follow(prepare(asked), quiet=True)
    shutil.rmtree(model.parent / "reports", ignore_errors=True)
    store = home(model.parent / "reports") / "store"
    place = Place(Path("run"), Path("scratch"), home(model.parent / "reports"))
    keep = Making(settled, place, Steps(Limits(), verbose=False)).keep
    (store / "locks").mkdir(parents=True)
    with FileLock(store / "locks" / keep.store.key(*keep._given(), "normalise")):
        events = []
        running = run(settled, asked)
        with contextlib.suppress(StopIteration):
            while True:
                events.append(next(running))
    assert Progress("wait for another run: normalise") in events
    report, _ = report_of(model)
    assert report.unfinished is not None
    assert "limits.run, 4s, was over at normalise" in report.unfinished
    assert called


def test_every_trial_stands_in_a_report_before_the_next_is_made(model: Path, called: list[str]) -> None:
    asked = request(model)
    running = run(follow(prepare(asked), quiet=True), asked)
    seen = 0
    for event in running:
        if isinstance(event, Trial):
            seen += 1
            report, folder = report_of(model)
            assert report.unfinished == "the run is going on, or was killed"
            assert (report.baseline, *report.trials)[-1] == event
            assert len(report.trials) == seen - 1
            is_whole(report, folder)
    assert seen == 3
    assert report_of(model)[0].unfinished is None
    assert called


def test_a_signal_while_something_is_shown_ends_in_a_report_too(
    model: Path, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(views._Silent):
        def show(self, event: Progress | Trial) -> None:
            if isinstance(event, Progress) and event.step == "int8: score":
                raise Stopped(15)

    asked = request(model)
    settled = follow(prepare(asked), quiet=True)
    monkeypatch.setattr(views, "_Silent", Interrupted)
    with pytest.raises(Stopped):
        follow(run(settled, asked), quiet=True)
    report, folder = report_of(model)
    assert report.unfinished == "stopped by SIGTERM"
    assert report.baseline.measurement
    assert report.trials[0].failure
    is_whole(report, folder)
    assert called


def test_a_run_whose_time_is_over_ends_with_what_there_is_and_is_no_error(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=lambda: now.seconds))

    def call(piece: Callable[..., Any], *args: object, limits: Limits, **how: object) -> Any:
        if piece is work.build and "fused" in str(args[2]):
            assert limits.seconds == 3600 - 10
            now.seconds = 3600.0
            raise RungError("stopped after 3590s")
        now.seconds = 10.0 if piece is work.normalise else now.seconds
        return (yield from whole_run.call_here(piece, *args, **how))

    monkeypatch.setattr(isolation, "call", call)
    monkeypatch.setattr("compressor.gates.regression", lambda _rival, _trial: None)
    text = TWO.replace("measure: 200ms", "measure: 200ms, run: 1h, seconds: 7200").replace("1MB", "1B")
    report = go(model, text).report
    assert (report.verdict, report.chosen) == ("inconclusive", None)
    assert report.unfinished is not None
    assert "limits.run, 3600s, was over at fused: build" in report.unfinished
    assert "run again, which goes on from what is made, or raise limits.run" in report.unfinished
    assert "Best so far: int8: " in formats.sentence(report)
    assert report.trials[-1].failure


def test_a_run_without_any_time_left_ends_before_its_baseline(model: Path, called: list[str]) -> None:
    report = go(model, TWO.replace("measure: 200ms", "measure: 200ms, run: 1us")).report
    assert report.verdict == "inconclusive"
    assert report.baseline.failure
    assert [warning for warning in report.warnings if warning.startswith("not climbed: int8, fused; the run ended")]
    assert called == ["make"]


def test_a_model_that_changes_while_it_is_read_is_refused(
    model: Path, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = work.build

    def changing(*args: Any) -> Any:
        made = yield from build(*args)
        _other_weights(model)
        return made

    monkeypatch.setattr(work, "build", changing)
    with pytest.raises(InputError, match=r"net\.onnx: changed while the run was reading it"):
        go(model)
    assert called.count("apply") == 0
    assert not list(home(model.parent / "reports").glob("store/*/entry.json"))
