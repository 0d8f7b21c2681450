"""`compress export`, and torch programs as MODEL of `compress run`: from a factory to a registered version."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import torch_nets
import yaml
from safetensors.torch import save_file

ROOT = Path(__file__).parents[2]
Command = Callable[..., int]


def resnet(home: Path, n: int) -> torch.nn.Module:
    """Write weights, and samples with the module's own answers as labels; gives the module."""
    net = torch_nets.resnet().eval()
    save_file(net.state_dict(), home / "w.safetensors")
    x = np.random.default_rng(1).normal(1, 2, (n, 3, 8, 8)).astype(np.float32)
    (home / "calibration_data").mkdir()
    label = net(torch.from_numpy(x)).argmax(1).numpy()
    np.savez(home / "calibration_data" / "resnet.npz", x=x, label=label)
    return net


def recipe(home: Path) -> Path:
    path = home / "r.yaml"
    rungs = [{"name": "int8", "stages": [{"quantize": {"scheme": "static"}}]}]
    gates = [{"size": {"max": "1MB"}}, {"accuracy": {"max_drop": "100%"}}]
    path.write_text(yaml.safe_dump({"rungs": rungs, "gates": gates, "limits": {"measure": "1s"}}))
    return path


@pytest.mark.slow
def test_a_factory_becomes_a_registered_version(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net = resnet(tmp_path, 80)
    registry = f"sqlite:///{tmp_path}/mlflow.db"
    words = ("--weights", "w.safetensors", "--input", "x=1x3x8x8:float32", "--recipe", recipe(tmp_path))
    assert command("run", "torch_nets:resnet", *words, "--registry", registry) == 0
    (path,) = tmp_path.glob("reports/resnet/*/report.json")
    report = json.loads(path.read_text())
    assert (report["verdict"], report["model"]["name"]) == ("pass", "resnet")
    assert "export: it came in training mode, and was put in evaluation mode" in report["warnings"]
    (float_model,) = tmp_path.glob("reports/resnet/exported-*/resnet.onnx")
    assert float_model.parent.name == f"exported-{report['model']['sha256'][:12]}"
    x = np.random.default_rng(2).normal(1, 2, (5, 3, 8, 8)).astype(np.float32)
    (found,) = ort.InferenceSession(str(float_model), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert np.allclose(found, net(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert report["data"]["evaluation"]["source"].endswith("calibration_data/resnet.npz")
    assert report["baseline"]["measurement"]["score"]["value"] == 1.0, "labels are torch's own answers"
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        assert database.execute("SELECT name, version FROM model_versions").fetchall() == [("resnet", 1)]
    artifact = next(trial for trial in report["trials"] if trial["rung"] == "int8")["artifacts"][0]["files"][0]["path"]
    kept = {entry.key: entry.value for entry in onnx.load(path.parent / artifact).metadata_props}
    assert kept["compressor.export.source"] == "torch_nets:resnet"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "shapes"),
    [
        ("Encoder", ("--input", "ids=1x12:int64:50", "--dynamic", "ids:0=batch"), {"ids": (12,)}),
        (
            "Recurrent",
            (
                "--input",
                "series=1x9x6",
            ),
            {"series": (9, 6)},
        ),
        ("program", (), {"x": (3, 8, 8)}),
    ],
)
def test_transformer_lstm_and_pt2_become_registered_versions(  # noqa: PLR0913, PLR0917 - fixtures and a table
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    words: tuple[str, ...],
    shapes: dict[str, tuple[int, ...]],
) -> None:
    monkeypatch.chdir(tmp_path)
    is_file = name == "program"
    model = torch_nets.program(tmp_path / "program.pt2") if is_file else f"torch_nets:{name}"
    generator = np.random.default_rng(1)
    (tmp_path / "calibration_data").mkdir()
    drawn = {
        key: generator.integers(0, 50, (60, *dims)) if key == "ids" else generator.normal(size=(60, *dims))
        for key, dims in shapes.items()
    }
    taken = next(iter(shapes)) if not is_file else "input"
    np.savez(tmp_path / "calibration_data" / f"{name}.npz", **{taken: next(iter(drawn.values()))})
    registry = f"sqlite:///{tmp_path}/mlflow.db"
    assert command("run", model, *words, "--recipe", recipe(tmp_path), "--registry", registry) == 0
    (path,) = tmp_path.glob(f"reports/{name}/*/report.json")
    report = json.loads(path.read_text())
    assert report["verdict"] == "pass"
    assert all(db > 20 for trial in report["trials"] for stage in trial["stages"] for db in stage["sqnr_db"].values())
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        assert database.execute("SELECT name, version FROM model_versions").fetchall() == [(name, 1)]


def test_export_writes_the_file_and_says_what_it_did_and_again_the_same_bytes(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("export", "torch_nets:linear", "--input", "x=1x5", "--opset", "18")
    assert command(*words, "--output", "sub/net.onnx") == 0
    out, err = capsys.readouterr()
    assert f"{tmp_path}/sub/net.onnx" in out
    assert "dynamo of torch" in out
    assert "opset 18" in out
    assert "SQNR at x 3x5" in out
    assert "put in evaluation mode" in err
    assert err.splitlines()[-1] == "next      compress run sub/net.onnx --sla 50ms"
    assert [file.name for file in (tmp_path / "sub").iterdir()] == ["net.onnx"]
    assert command(*words, "--json", "--quiet") == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["name"], told["exporter"], told["model"]["opset"], err) == ("linear", "dynamo", 18, "")
    assert (tmp_path / "linear.onnx").read_bytes() == (tmp_path / "sub" / "net.onnx").read_bytes()


def test_a_program_that_could_run_code_is_refused_and_the_parent_loads_no_torch(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pt2"
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("bad/data/sample_inputs/model.pt", torch_nets.checkpoint(tmp_path / "made"))
    script = (
        f"import sys; sys.argv = ['compress', 'run', {str(bad)!r}, '--sla', '50ms', '--registry', 'none']\n"
        "from compressor import cli\ntry: cli.main()\nfinally: print('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", script]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout) == (2, "False\n")
    assert "bad.pt2: loading it could run code: it holds a pickle that needs posix.mkdir" in ended.stderr
    assert "--trust" in ended.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "net.pt", "--sla", "5ms"), "net.pt: holds weights or a pickle, which is never loaded as a model"),
        (("run", "net.onnx", "--sla", "5ms", "--input", "x=1"), "net.onnx: --weights, --input, --dynamic and --trust"),
        (("run", "net.onnx", "--sla", "5ms", "--trust"), "net.onnx: --weights, --input, --dynamic and --trust"),
        (("run", "n:f", "--sla", "5ms", "--input", "x"), "--input: expected NAME=DIMENSIONS"),
        (("export", "net.onnx"), "net.onnx: no torch program; expected package.module:factory, or a .pt2 file"),
        (("export", "net.pth"), "package.module:factory --weights net.pth"),
    ],
)
def test_what_is_no_torch_program_exits_2_before_any_work(
    command: Command, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert command(*words) == 2
    assert message in capsys.readouterr().err
