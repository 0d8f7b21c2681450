"""The folder in which a page's commands are run, and how: in this process, each measurement for two seconds at most.

It holds what pages presume: the demo under the names that they use, its data, recipes, a run that chose a rung, and a
registry with a champion and a candidate.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import registered
from doc_pages import ROOT, Command
from filelock import FileLock
from whole_run import Ended, call_here, newest

from compressor import cli, formats, isolation
from compressor.cli import options

MODELS = ("model", "resnet20_cifar10")
"""Names under which pages speak of a model of the reader's: the demo has them here."""
FAST = """\
limits: {measure: 2s}
rungs:
  - {name: int8, stages: [{quantize: {scheme: static}}]}
gates:
  - latency: {p99: 2s}
  - accuracy: {max_drop: 1%}
"""
WRONG = "$include: base.yaml\n\n\n\nlimits:\n  memroy: 2GiB\n"
_MEASURE_S = 2.0
_RUN = re.compile(r"/(?:RUN|\d{8}-\d{6}-[0-9a-f]{4})(?=/|$)")
"""The folder of a run, by the word for it or by the name that one had."""


class Place:
    """A folder with what a page presumes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def compress(self, command: Command) -> Ended:
        """Run a command line of ours here; RUN stands for the folder of the last run."""
        words = [self._settled(word) for word in command.words[1:]]
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        path = list(sys.path)
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["compress", *words])
            patch.setattr(isolation, "call", call_here)
            patch.setattr(formats, "draw", lambda _report, _folder: None)  # seconds a run, and tested elsewhere
            patch.setattr(options, "settle", _short(options.settle))
            patch.delenv("MLFLOW_TRACKING_URI", raising=False)
            with pytest.raises(SystemExit) as stopped:
                cli.main()
        sys.path[:] = path
        for name, module in list(sys.modules.items()):  # the next page may have another one of that name
            if str(getattr(module, "__file__", None) or "").startswith(f"{self.folder}/"):
                del sys.modules[name]
        told, said = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
        if command.into:
            (self.folder / self._settled(command.into)).write_text(told, encoding="utf-8")
        code = stopped.value.code
        return Ended(code if isinstance(code, int) else int(bool(code)), told, said)

    def _settled(self, word: str) -> str:
        """Put the newest run in the place of RUN."""
        found = _RUN.search(word)
        report = newest(self.folder / word[: found.start()], "*/report.json") if found else None
        return _RUN.sub(f"/{report.parent.name}", word) if report else word


def made(factory: pytest.TempPathFactory) -> Path:
    """Give the folder that all places are copies of, made once for all workers."""
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder = root / "documented"
    with FileLock(root / "documented.lock"):
        if not (folder / "done").exists():
            _make(folder, factory)
            (folder / "done").touch()
    return folder


def copied(template: Path, folder: Path, text: str) -> Place:
    """Give a place for the page with this text: without the files that it makes."""
    shutil.copytree(template, folder, dirs_exist_ok=True, symlinks=True)
    for made_there in re.findall(r"--to (\S+)", text):
        (folder / made_there).unlink(missing_ok=True)
    if "nets:" in text:
        _torch_program(folder)
    return Place(folder)


def _make(folder: Path, factory: pytest.TempPathFactory) -> None:
    folder.mkdir()
    for name in ("examples", "recipes", "calibration_data", "schemas"):
        shutil.copytree(ROOT / name, folder / name)
    demo, data = folder / "examples" / "digits.onnx", folder / "calibration_data"
    for name in MODELS:
        shutil.copy(demo, folder / f"{name}.onnx")
        for use in ("calibration", "evaluation"):
            shutil.copy(data / f"digits_{use}.npz", data / f"{name}_{use}.npz")
    shutil.copy(data / "digits_calibration.npz", folder / "inputs.npz")
    shutil.copy(data / "digits_evaluation.npz", folder / "labelled.npz")
    (folder / "recipes" / "model.yaml").write_text(FAST)
    (folder / "recipe.yaml").write_text(FAST)
    (folder / "wrong.yaml").write_text(WRONG)
    (folder / "base.yaml").write_text("data:\n  metrik: top1\n")
    for _ in registered.empty(factory, folder):
        place = Place(folder)
        for words in (("examples/digits.onnx", "--sla", "50ms"), ("model.onnx", "--recipe", "recipe.yaml")):
            ended = place.compress(Command(("compress", "run", *words)))
            assert ended.code == 0, ended.err
        registered.client(f"sqlite:///{folder}/mlflow.db").set_registered_model_alias("model", "candidate", "1")


def _torch_program(folder: Path) -> None:
    """Put what a page on exporting speaks of beside it: weights of its module, and a program of torch."""
    import torch
    from safetensors.torch import save_file

    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    save_file(module.state_dict(), folder / "w.safetensors")
    torch.export.save(torch.export.export(module.eval(), (torch.zeros(1, 3, 32, 32),)), folder / "model.pt2")


def _short(settle: object) -> object:
    """Give the same as `settle`, but that a measurement takes two seconds at most."""

    def short(*given: object) -> object:
        asked, folder = settle(*given)  # type: ignore[operator]
        measure = min(asked.limits.measure, _MEASURE_S)
        return asked.model_copy(update={"limits": asked.limits.model_copy(update={"measure": measure})}), folder

    return short
