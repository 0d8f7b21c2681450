"""The commands: exit codes, what goes to stdout and what to stderr, and what is not imported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pipeline_broken as broken
import psutil
import pytest
import small
import yaml

import compressor
from compressor import pipeline, recipe, registry, schemes

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
VENDORS = {"onnx", "onnx_ir", "onnxruntime", "onnxsim", "nncf", "mlflow", "torch", "psutil", "PIL"}
Command = Callable[..., int]


def recipe_file(folder: Path, **changes: object) -> Path:
    content = {
        "rungs": [{"name": "int8", "stages": [{"quantize": {"scheme": "static"}}]}],
        "gates": [{"size": {"max": "1MB"}}, {"accuracy": {"max_drop": "5%"}}],
        "limits": {"measure": "1s"},
        **changes,
    }
    path = folder / "r.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Run a command line that passes, in a folder of its own; as small as it is, INT8 may be slower."""
    home = tmp_path_factory.mktemp("finished")
    model = small.classifier(home / "net.onnx")
    (home / "calibration_data").mkdir()
    small.data(home / "calibration_data" / "net.npz", model, 80, seed=1)
    script = "from compressor import cli, gates\ngates.regression = lambda _before, _now: None\ncli.main()"
    words = [sys.executable, "-c", script, "run", "net.onnx", "--recipe", recipe_file(home), "--registry", "none"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def finished(ended: subprocess.CompletedProcess[str]) -> Path:
    """Give the folder of that run."""
    home = Path(ended.args[ended.args.index("--recipe") + 1]).parent
    (folder,) = (home / "reports").glob("net/*")
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """Give a copy of that folder, to be changed."""
    return shutil.copytree(finished, tmp_path / "copied")


def chosen(report: dict[str, Any]) -> dict[str, Any]:
    """Give the trial that a report chose."""
    trials: list[dict[str, Any]] = [report["baseline"], *report["trials"]]
    return next(trial for trial in trials if trial["rung"] == report["chosen"])


def test_help_loads_no_vendor_package_and_little_else() -> None:
    script = (
        "import sys; sys.argv = ['compress', '--help']\nfrom compressor import cli\n"
        "try: cli.main()\nexcept SystemExit: print(*sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "Usage" in said
    assert not (VENDORS | {"numpy", "pydantic", "yaml", "rich.live"}) & set(said.splitlines()[-1].split())


def test_a_pass_exits_0_and_says_where_everything_is(ended: subprocess.CompletedProcess[str], finished: Path) -> None:
    assert (ended.returncode, ended.stdout) == (0, "")
    lines = ended.stderr.splitlines()
    assert any(line.endswith("int8: quantize") for line in lines), "plain lines where there is no terminal"
    assert any(line.startswith("pass: int8 meets every gate") for line in lines)
    artifact = next(line.split()[1] for line in lines if line.startswith("artifact"))
    assert (finished.parents[2] / artifact).is_file()
    assert lines[-1].startswith(f"next      {sys.executable} reports/net/")


def test_a_missed_gate_exits_3(command: Command, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("run", model, "--recipe", recipe_file(model.parent), "--sla", "1us") == 3
    err = capsys.readouterr().err
    assert "fail: no candidate meets every gate. Decided at int8: latency p99 not met, p99 is over" in err
    assert "--all" not in err.splitlines()[-1]


def test_no_data_exits_4_with_a_loud_warning(
    command: Command, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "calibration_data" / "net.npz").unlink()
    assert command("run", model, "--recipe", recipe_file(model.parent)) == 4
    err = capsys.readouterr().err
    assert "warning: no calibration data" in err
    assert "inconclusive: " in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "none.onnx", "--sla", "50ms"], "none.onnx"),
        (["run", "net.onnx"], "nothing says how fast is fast enough; give --sla 50ms, or --recipe FILE"),
        (["run", "net.onnx", "--sla", "50"], "--sla: p99: expected a time such as 50ms, found '50'"),
        (["run", "net.onnx", "--sla", "5ms", "--shape", "x"], "--shape: expected NAME=DIMENSIONS"),
        (["run", "net.onnx", "--recipe", "none.yaml"], "none.yaml: cannot be read as a recipe"),
        (["run", "net.onnx", "--sla", "5ms", "--calibration", "none.npz"], "none.npz: no such file or folder"),
        (["inspect", "none.onnx"], "none.onnx"),
        (["report", "none.json"], "none.json"),
        (["publish", "none.json"], "none.json"),
        (["recipe", "check", "none.yaml"], "none.yaml: cannot be read as a recipe"),
        (["recipe", "init", "--to", "net.onnx"], "net.onnx: exists already"),
        (["run", "net.onnx", "--sla", "5ms", "--metric", "topp1"], "topp1"),
        (["run", "net.onnx", "--sla", "5ms", "--rate", "0/s"], "expected a rate above 0"),
        (["run", "net.onnx", "--nonsense"], "No such option"),
    ],
)
def test_wrong_usage_exits_2_with_a_sentence_and_no_traceback(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], message: str
) -> None:
    assert model.is_file()
    assert command(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_a_registry_that_cannot_be_reached_exits_5_before_any_work(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("run", model, "--sla", "10s", "--registry", "http://127.0.0.1:9") == 5
    assert "--registry none" in capsys.readouterr().err
    assert not (model.parent / "reports").exists()


def test_a_registry_that_refuses_exits_6_with_everything_on_disk(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{model.parent}/mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr(registry, "record", broken.refuse)
        assert command("run", model, "--recipe", recipe_file(model.parent), "--registry", uri) == 6
    err = capsys.readouterr().err
    assert "pass: int8 meets every gate" in err
    assert "the run was not recorded" in err
    (report,) = (model.parent / "reports").glob("net/*/report.json")
    assert json.loads(report.read_text())["verdict"] == "pass"
    assert command("publish", report) == 0
    assert json.loads(report.read_text())["registry"]["version"] == "1"
    capsys.readouterr()
    judged = ("--duration", "300ms", "--json", "--quiet")
    assert command("bench", "models:/net@champion", "--registry", uri, *judged) == 0
    out = json.loads(capsys.readouterr().out)
    assert (
        out["side"]["model"]["sha256"] == chosen(json.loads(report.read_text()))["artifacts"][0]["files"][0]["sha256"]
    )
    assert not any("made-up inputs" in warning for warning in out["warnings"]), "it is known by its name"


@pytest.mark.parametrize("output", ["net.onnx", "net.onnx/x", "/proc/x"])
def test_an_output_that_cannot_be_written_exits_5_before_any_work(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    assert model.is_file()
    assert command("run", "net.onnx", "--sla", "10s", "--output", output, "--dry-run") == 5
    assert "--output" in capsys.readouterr().err


def test_an_output_that_is_a_loop_of_links_exits_5(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model.parent / "loop").symlink_to("loop")
    assert command("run", model, "--recipe", recipe_file(model.parent), "--output", "loop") == 5
    assert "Traceback" not in capsys.readouterr().err


def test_a_report_whose_recipe_is_damaged_exits_2(
    command: Command, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = copied / "report.json"
    for damage in ({}, {"limits": {"seconds": "long"}}, {"registry": 3}):
        report.write_text(json.dumps({**json.loads(report.read_text()), "recipe": damage}))
        assert command("publish", report) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_plan_that_goes_past_a_limit_exits_2(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("run", model, "--recipe", recipe_file(model.parent, limits={"memory": "1MiB"})) == 2
    assert "plan failed: stopped at" in capsys.readouterr().err


def test_a_bug_exits_1_with_its_traceback_and_where_to_report_it(model: Path) -> None:
    script = (
        "from compressor import cli\nfrom compressor.pipeline import work\nimport pipeline_broken\n"
        "work.build = pipeline_broken.bug\ncli.main()"
    )
    words = [sys.executable, "-c", script, "run", str(model), "--recipe", str(recipe_file(model.parent))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(ROOT)])}
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr
    assert "Traceback" not in ended.stderr
    (log,) = model.parent.glob("compressor-bug-*.log")
    assert "in bug" in log.read_text(), "the traceback of the child"
    assert "baseline: build: failed (ZeroDivisionError)" in log.read_text()
    assert "please open an issue" in ended.stderr


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_run_stops_its_children_and_exits_with_the_signals_code(
    model: Path, sent: signal.Signals, code: int
) -> None:
    script = (
        "import signal\n"
        f"signal.signal({int(sent)}, signal.SIG_DFL)\n"  # who runs the tests in the background may ignore it
        "from compressor import cli\nfrom compressor.pipeline import work\nimport pipeline_broken\n"
        "work.build = pipeline_broken.hang\ncli.main()"
    )
    words = [sys.executable, "-c", script, "run", str(model), "--recipe", str(recipe_file(model.parent))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(ROOT)])}
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "baseline: build" in line:
                break
        time.sleep(0.5)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(sent)
        process.send_signal(sent)  # as of somebody who is impatient
        rest = process.stderr.read()
    assert process.returncode == code
    assert "Traceback" not in rest
    assert rest.count(f"stopped by {sent.name}") == 1
    assert "what was done until then is reported in" in rest
    assert children
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_a_signal_that_is_ignored_stays_so() -> None:
    script = (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from compressor import cli\n"
        "try:\n    cli.main()\nexcept SystemExit:\n"
        "    print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, callable(signal.getsignal(signal.SIGHUP)))"
    )
    words = [sys.executable, "-c", script, "--version"]
    ended = subprocess.run(
        words, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert ended.stdout.splitlines()[-1] == "True True"


def test_a_reader_who_has_seen_enough_takes_nothing_from_a_run(model: Path) -> None:
    reading, writing = os.pipe()
    words = [sys.executable, "-m", "compressor", "run", str(model), "--recipe", str(recipe_file(model.parent))]
    with subprocess.Popen(
        words, cwd=model.parent, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=writing
    ) as process:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
    assert process.returncode == 0
    (report,) = (model.parent / "reports").glob("net/*/report.json")
    assert json.loads(report.read_text())["unfinished"] is None


def test_a_run_that_is_going_on_is_not_published_and_one_that_ended_early_is(
    command: Command, copied: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = copied / "report.json"
    whole = json.loads(report.read_text())
    report.write_text(json.dumps({**whole, "unfinished": pipeline.GOING_ON}))
    uri = f"sqlite:///{tmp_path}/runs.db"
    assert command("publish", report, "--registry", uri) == 2
    assert "wait for its end, or run again" in capsys.readouterr().err
    cut = {**whole, "unfinished": "limits.run, 1s, was over", "verdict": "inconclusive", "chosen": None}
    report.write_text(json.dumps(cut))
    assert command("publish", report, "--registry", uri) == 0
    with sqlite3.connect(tmp_path / "runs.db") as database:
        tags = dict(database.execute("SELECT key, value FROM tags").fetchall())
    assert tags["compressor.unfinished"] == "limits.run, 1s, was over"
    assert json.loads(report.read_text())["registry"]["version"] is None


def test_a_dry_run_shows_the_plan_and_does_nothing(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("run", model, "--sla", "50ms", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "x 1x3x8x8" in out
    names = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert names[-5:] == ["baseline", "int8", "int8-fused", "prune20-int8-fused", "prune40-int8-fused"]
    assert not (model.parent / "reports").exists()


def test_json_goes_to_stdout_alone_and_a_metric_beside_the_recipe_is_found(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = model.parent / "elsewhere"
    beside.mkdir()
    (beside / "ours.py").write_text("def share(outputs, labels):\n    return outputs['logits'].argmax(1) == labels\n")
    file = recipe_file(beside, data={"metric": "ours:share"})
    assert command("run", model, "--recipe", file, "--json", "--quiet") == 0
    out, err = capsys.readouterr()
    assert err == ""
    (report,) = (model.parent / "reports").glob("net/*/report.json")
    assert json.loads(out) == json.loads(report.read_text())
    assert json.loads(out)["data"]["metric"] == "ours:share"


def test_a_recipe_is_written_checked_and_described(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert model.is_file()
    assert command("recipe", "init", "--to", "new.yaml", "--sla", "p95=7ms") == 0
    assert "compress run MODEL --recipe new.yaml" in capsys.readouterr().err
    assert recipe.read(Path("new.yaml")) == recipe.override(recipe.default(), recipe.Overrides(sla="p95=7ms"))
    assert command("recipe", "check", "new.yaml") == 0
    capsys.readouterr()
    assert command("recipe", "schema") == 0
    jsonschema.validate(yaml.safe_load(Path("new.yaml").read_text()), json.loads(capsys.readouterr().out))


def test_a_wrong_recipe_fails_the_check_at_its_line(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = model.parent / "wrong.yaml"
    wrong.write_text("version: 1\ngats: []\n")
    assert command("recipe", "check", wrong) == 2
    assert f"{wrong}:2: recipe.gats: unknown key; did you mean 'gates'?" in capsys.readouterr().err


def test_inspect_describes_a_model(command: Command, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("inspect", model, "--json") == 0
    seen = json.loads(capsys.readouterr().out)
    weights = 9 * (3 * 8 + 8 * 8) + 4 * 8 + 8 * 4 + 4
    assert seen["summary"]["parameters"] == weights
    assert seen["model"]["macs"] == 64 * 9 * (3 * 8 + 8 * 8) + 8 * 4
    assert seen["summary"]["operators"]["Conv"] == 2
    assert command("inspect", model) == 0
    assert f"{weights}" in capsys.readouterr().out


def test_doctor_describes_this_machine(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("doctor", "--json") == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["cpus_usable"] <= len(os.sched_getaffinity(0))
    assert seen["versions"]["numpy"] == np.__version__
    assert "CPUExecutionProvider" in seen["providers"]
    assert set(seen["extras"]) == {"metrics", "torch", "tensorrt", "tensorrt-rtx", "openvino"}
    assert schemes.by_name(seen["scheme"]["name"]) is not None
    assert command("doctor") == 0
    shown = capsys.readouterr().out
    assert "integer kernels" in shown
    assert f"{seen['scheme']['name']}: " in shown


def test_a_report_is_printed_in_another_format(
    command: Command, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = finished / "report.json"
    assert command("report", report) == 0
    assert capsys.readouterr().out == (finished / "report.md").read_text()
    assert command("report", report, "--format", "json") == 0
    assert capsys.readouterr().out == report.read_text()
    assert command("report", report, "--format", "pdf") == 2


def test_the_version_is_told(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--version") == 0
    assert capsys.readouterr().out.split() == ["compressor", compressor.__version__]
