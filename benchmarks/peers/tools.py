"""The tools that `compare.py` holds beside ours, each in a virtual environment of its own.

A new tool is a script that takes the model's path, the folder of feeds and the path to write, and a line in `PEERS`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
SHOWN = 100  # characters of a message
PRIVATE = {"OLIVE_DISABLE_TELEMETRY": "1", "ORT_DISABLE_TELEMETRY": "1"}


@dataclass(frozen=True)
class Peer:
    """A tool: its script, what it needs installed, its mode, and whether it is for transformers alone."""

    script: str
    needs: tuple[str, ...]
    mode: tuple[str, ...] = ()
    transformers: bool = False


@dataclass(frozen=True)
class Made:
    """What a tool made of a model, or why it made nothing, and what that took, memory of its largest process."""

    path: Path | None
    failure: str
    cpu_s: float
    peak_bytes: int


ORT = ("onnxruntime==1.32.0", "onnx==1.23.2", "numpy==2.4.6", "sympy==1.14.0")
NNCF = ("nncf==3.4.0", "onnxruntime==1.32.0", "onnx==1.23.2", "numpy==2.4.6")
OLIVE = ("olive-ai==0.13.0", "torch==2.13.0", "requests==2.34.2", *ORT)
INC = ("onnx-neural-compressor==1.0", "onnxruntime==1.32.0", "onnx==1.23.2", "numpy==1.26.4", "scipy==1.14.1")
PEERS = {
    "ONNX Runtime static, default": Peer("ort_quantizer", ORT, ("static",)),
    "ONNX Runtime static, recommended": Peer("ort_quantizer", ORT, ("recommended",)),
    "ONNX Runtime dynamic": Peer("ort_quantizer", ORT, ("dynamic",)),
    "NNCF default": Peer("nncf_quantizer", NNCF, ("default",)),
    "NNCF transformer": Peer("nncf_quantizer", NNCF, ("transformer",), transformers=True),
    "Olive static": Peer("olive_pass", OLIVE),
    "Neural Compressor static": Peer("inc_quantizer", (*INC, "prettytable==3.18.0")),
    "onnxsim (float)": Peer("onnxsim_simplifier", ("onnxsim==0.8.1", *ORT)),
    "onnxslim (float)": Peer("onnxslim_slimmer", ("onnxslim==0.1.98", *ORT)),
}


def environment(envs: Path, name: str, needs: tuple[str, ...]) -> Path:
    """Give the interpreter of a virtual environment in which these are installed; one that is there serves again."""
    folder, stamp = envs / name, envs / name / "needs.txt"
    if not stamp.exists() or stamp.read_text() != "\n".join(needs):
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        if needs:
            subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *needs], check=True)
        stamp.write_text("\n".join(needs))
    return folder / "bin/python"


def installed_bytes(python: Path) -> int:
    """Give the size of all packages beside an interpreter."""
    files = (python.parents[1] / "lib").rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


def make(peer: Peer, python: Path, model: Path, feeds: Path, folder: Path) -> Made:
    """Let a tool make something of a model in an empty folder."""
    out = folder / "model.onnx"
    words = [str(python), str(HERE / f"{peer.script}.py"), str(model), str(feeds), str(out), *peer.mode]
    made = measured(words, folder, {})
    return replace(made, path=None if made.failure or not out.exists() else out)


def measured(words: list[str], folder: Path, environ: dict[str, str]) -> Made:
    """Run a process to its end, for what it and its own children took; `failure` where its exit code is not 0."""
    log, took = folder / "log.txt", folder / "took.json"
    with log.open("w") as out:
        command = [sys.executable, str(HERE / "spent.py"), str(took), *words]
        env = {**os.environ, **PRIVATE, "PYTHONPATH": "", **environ}
        code = subprocess.run(command, cwd=folder, stdout=out, stderr=out, env=env, check=False).returncode
    return Made(None, last_line(log.read_text(errors="replace")) if code else "", **json.loads(took.read_text()))


def last_line(text: str) -> str:
    """Give the end of a message, short enough for a cell of a table."""
    said = [row.strip() for row in text.splitlines() if row.strip()] or ["no message"]
    return said[-1].rpartition("model.onnx: ")[2].replace("|", "/")[:SHOWN]
