"""`bench`, `compare` and `doctor --noise`: exit codes, what goes to stdout and what to stderr, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import pytest
import small

Command = Callable[..., int]


@pytest.fixture
def other(model: Path) -> Path:
    """Give a model with the same inputs and outputs that answers something else."""
    return small.classifier(model.with_name("other.onnx"), seed=1)


def _fixed(path: Path) -> Path:
    """Write the model at `path` with a fixed batch."""
    made = onnx.load(path)
    for tensor in (*made.graph.input, *made.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(made, path.with_name("fixed.onnx"))
    return path.with_name("fixed.onnx")


def test_a_model_far_below_its_limit_exits_0_with_every_point(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("bench", model, "--sla", "10s", "--batch", "2,1", "--json", "--quiet") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert (found["schema_version"], found["verdict"]) == (1, "pass")
    assert found["side"]["measurement"]["latency"]["shape"] == {"x": "2x3x8x8"}
    others = {other["at"]: other["shape"]["x"] for other in found["side"]["measurement"]["others"]}
    assert others == {"paced": "2x3x8x8", "batch 1": "1x3x8x8"}


def test_the_table_goes_to_stdout_and_the_verdict_to_stderr(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("bench", model, "--sla", "1us", "--duration", "1s") == 3
    out, err = capsys.readouterr()
    assert [line.partition("  ")[0] for line in out.splitlines()[:3]] == ["point", "main load", "paced"]
    assert "cold start" in out
    assert "not met: latency p99" in out
    told = err.splitlines()[-1]
    assert told.startswith(f"fail: {model} takes ")
    assert "latency p99 not met, p99 is over" in told


def test_without_a_limit_nothing_is_judged(command: Command, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("bench", model, "--duration", "500ms", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["verdict"] is None
    assert "no limit was asked" in err.splitlines()[-1]


def test_too_few_samples_exit_4(command: Command, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("bench", model, "--sla", "p99.9=10s", "--duration", "1ms") == 4
    out, err = capsys.readouterr()
    assert "undecided: latency p99.9" in out
    assert "inconclusive: " in err


def test_requests_come_at_the_rate_that_is_asked(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("bench", model, "--rate", "poisson:50/s", "--duration", "1s", "--json", "--quiet") == 0
    measurement = json.loads(capsys.readouterr().out)["side"]["measurement"]
    assert 20 < measurement["latency"]["offered_per_s"] < 100
    assert measurement["others"] == []


def test_an_overload_ends_by_itself_and_says_so(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("bench", model, "--rate", "200000/s", "--duration", "1s") == 0
    assert "overloaded: " in capsys.readouterr().out


def test_made_up_inputs_and_more_threads_than_cpus_are_warned_about(
    command: Command, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "calibration_data" / "net.npz").unlink()
    assert command("bench", model, "--duration", "300ms", "--threads", "64") == 0
    out, err = capsys.readouterr()
    assert "made-up inputs" in err
    assert "warning: 64 threads on" in err
    assert "64 on" in out


def test_an_artifact_is_measured_with_the_options_beside_it(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model.parent / "artifacts" / "int8"
    folder.mkdir(parents=True)
    model.rename(folder / "model.onnx")
    options = {"intra_op_num_threads": "1", "session.intra_op.allow_spinning": "0"}
    (folder / "session.json").write_text(json.dumps(options))
    assert command("bench", folder, "--duration", "300ms", "--json", "--quiet") == 0
    side = json.loads(capsys.readouterr().out)["side"]
    assert (side["source"], side["options"]) == (str(folder), options)


def test_a_model_that_answers_something_else_is_worse(
    command: Command, model: Path, other: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("compare", model, other, "--duration", "2s") == 3
    out, err = capsys.readouterr()
    rows = [line.partition("  ")[0] for line in out.splitlines()]
    assert rows[0] == "what"
    assert {"model", "size", "p50", "speed", "top1", "output logits", "machine", "accuracy"} <= set(rows)
    told = err.splitlines()[-1]
    assert "top1 drops by" in told
    assert "worse. accuracy not met: " in told


def test_a_faster_model_that_loses_no_more_than_allowed_is_not_worse(
    command: Command, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(small, "CHANNELS", 128)
        slow = small.classifier(model.with_name("slow.onnx"))
    samples = model.parent / "calibration_data" / "net.npz"
    judged = ("--evaluation", samples, "--metric", "cosine", "--max-drop", "100%")
    assert command("compare", slow, model, *judged, "--duration", "3s", "--json", "-q") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert (found["schema_version"], found["verdict"]) == (1, "not worse")
    assert found["after"]["measurement"]["errors"]["logits"]["n"] == 200


def test_noise_says_which_difference_this_machine_sees(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("doctor", "--noise", "--seconds", "1") == 0
    out, err = capsys.readouterr()
    assert "the same model twice" in out
    assert err.splitlines()[-1].startswith(("in 1 s ", "in 2 s ", "it told a model from itself"))
    assert command("doctor", "--noise", "--seconds", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["speedup"]["low"] <= found["speedup"]["ratio"] <= found["speedup"]["high"]
    assert found["p50_ms"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "none.onnx"], "none.onnx"),
        (["bench", "net.onnx", "--sla", "fast"], "--sla: p99: expected a time such as 50ms, found 'fast'"),
        (["bench", "net.onnx", "--batch", "0"], "--batch: expected whole numbers from 1"),
        (["bench", "net.onnx", "--batch", "1,,2"], "--batch: expected whole numbers from 1"),
        (["bench", "net.onnx", "--rate", "0/s"], "expected a rate above 0 such as 200/s"),
        (["bench", "net.onnx", "--rate", "poisson:fast"], "expected a rate above 0 such as 200/s"),
        (["bench", "net.onnx", "--rate", "none.csv"], "none.csv: no such file"),
        (["bench", "net.onnx", "--duration", "30"], "--duration: "),
        (["bench", "net.onnx", "--engine", "fast"], "--engine: expected one of auto, onnxruntime, found 'fast'"),
        (["bench", "net.onnx", "--samples", "none.npz"], "none.npz: no such file"),
        (["bench", "fixed.onnx", "--batch", "1,4"], "its first axis fixed"),
        (["compare", "net.onnx", "none.onnx"], "none.onnx"),
        (["compare", "net.onnx", "net.onnx", "--metric", "topp1"], "topp1"),
        (["compare", "net.onnx"], "Missing argument"),
        (["doctor", "--noise", "--seconds", "0"], "'--seconds'"),
    ],
)
def test_wrong_usage_exits_2_with_a_sentence_and_no_table(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], message: str
) -> None:
    _fixed(model)
    assert command(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err
