"""action.yml: its steps are run by bash as GitHub's runner runs them, with what it sets and puts in place."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION: Mapping[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
PROGRAM = "import json, os, sys\nopen(os.environ['SEEN'], 'w').write(json.dumps([os.getcwd(), *sys.argv[1:]]))\n"
HOSTILE = (
    "; touch pwned #",
    "$(touch pwned)",
    "`touch pwned`",
    '" && touch pwned && "',
    "' ; touch pwned ; '",
    "a\ntouch pwned\n",
    "-rf ~ *",
    "--help",
    "x\nverdict=forged",
    "${{ github.token }}",
)


@dataclass
class Runner:
    """A job in a folder of its own; `outputs` holds what steps wrote, by step."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    said: str = ""

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def uses(self, **inputs: str) -> int:
        """Run the action's steps up to the first that fails; give its exit code."""
        given = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        for step in ACTION["runs"]["steps"]:
            if code := self._step(step, given):
                return code
        return 0

    def value(self, name: str) -> str:
        """Give an output of the action."""
        return self._filled(ACTION["outputs"][name]["value"], {})

    def _step(self, step: Mapping[str, Any], given: Mapping[str, str]) -> int:
        script, output = self.folder / "script.sh", self.folder / f"output-{step['id']}"
        script.write_text(step["run"])
        output.write_text("")
        environment = os.environ | {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_PATH": str(self.folder / "path"),
            "RUNNER_TEMP": str(self.folder),
            **self.variables,
            **{name: self._filled(value, given) for name, value in step["env"].items()},
        }
        where = self.workspace / self._filled(step.get("working-directory", "."), given)
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        ended = subprocess.run(command, check=False, cwd=where, env=environment, capture_output=True, text=True)
        self.said += ended.stdout + ended.stderr
        pairs = (line.partition("=") for line in output.read_text().splitlines())
        self.outputs[step["id"]] = {name: value for name, _, value in pairs}
        return ended.returncode

    def _filled(self, text: str, given: Mapping[str, str]) -> str:
        """Put in place what an expression stands for, once: what is put there is no expression."""

        def known(found: re.Match[str]) -> str:
            match found[1].split("."):
                case ["inputs", name]:
                    return given[name]
                case ["steps", step, "outputs", name]:
                    return self.outputs[step].get(name, "")
                case ["github", "action_path"]:
                    return str(ROOT)
            raise AssertionError(found[0])

        return EXPRESSION.sub(known, text)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    (tmp_path / "workspace").mkdir()
    return Runner(tmp_path)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a wheel of a program that is called as this one, and only keeps the words that it was called with."""
    path = tmp_path_factory.mktemp("wheel") / "compressor-0.0.1-py3-none-any.whl"
    told = "compressor-0.0.1.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("compressor/__init__.py", "")
        file.writestr("compressor/__main__.py", PROGRAM)
        file.writestr(f"{told}/METADATA", "Metadata-Version: 2.1\nName: compressor\nVersion: 0.0.1\n")
        file.writestr(f"{told}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{told}/RECORD", "")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install that wheel with the action, and give the Python that it is installed for."""
    folder = tmp_path_factory.mktemp("install")
    (folder / "workspace").mkdir()
    offline = {"PIP_NO_INDEX": "1", "PYTHONPATH": "", "SEEN": str(folder / "seen")}
    runner = Runner(folder, offline)
    assert runner.uses(model="m.onnx", python=sys.executable, install=str(wheel)) == 0, runner.said
    assert json.loads((folder / "seen").read_text()) == [str(runner.workspace), "run", "--ci", "github", "--", "m.onnx"]
    python = Path(runner.outputs["install"]["python"])
    assert python == folder / "compressor-venv" / "bin" / "python"
    return python


def seen(runner: Runner, python: Path, **inputs: str) -> list[str]:
    """Give the words that the program was called with, first the folder where it was."""
    file = runner.folder / "seen"
    runner.variables = {"SEEN": str(file), "PYTHONPATH": ""}
    assert runner.uses(python=str(python), install="none", **inputs) == 0, runner.said
    words: list[str] = json.loads(file.read_text())
    return words


def test_no_input_is_put_into_a_script() -> None:
    steps = ACTION["runs"]["steps"]
    assert ACTION["runs"]["using"] == "composite"
    assert [step["shell"] for step in steps] == ["bash", "bash"]
    assert not any("${{" in step["run"] for step in steps)
    used = {name for step in steps for value in (*step["env"].values(), step.get("working-directory", ""))
            for name in re.findall(r"inputs\.([\w-]+)", value)}  # fmt: skip
    assert used == ACTION["inputs"].keys()
    assert all(one.get("required") or "default" in one for one in ACTION["inputs"].values())


def test_inputs_become_options(runner: Runner, installed: Path) -> None:
    (runner.workspace / "sub dir").mkdir()
    words = seen(
        runner,
        installed,
        model="a model.onnx",
        recipe="recipes/r 1.yaml",
        sla="p95=150ms",
        args="--max-drop '1 %'\n--shape \"x=1x3\"",
        working_directory="sub dir",
    )
    assert words == [
        *(str(runner.workspace / "sub dir"), "run", "--ci", "github", "--recipe=recipes/r 1.yaml", "--sla=p95=150ms"),
        *("--max-drop", "1 %", "--shape", "x=1x3", "--", "a model.onnx"),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_inputs_are_words_and_nothing_else(runner: Runner, installed: Path, text: str) -> None:
    words = seen(runner, installed, model=text, recipe=text, sla=text)
    assert words[1:] == ["run", "--ci", "github", f"--recipe={text}", f"--sla={text}", "--", text]
    assert not list(runner.folder.rglob("*pwned*"))


def test_hostile_options_are_split_and_not_expanded(runner: Runner, installed: Path) -> None:
    words = seen(runner, installed, model="m", args="; touch pwned $(touch pwned) `id` * ~ $HOME")
    expected = [";", "touch", "pwned", "$(touch", "pwned)", "`id`", "*", "~", "$HOME"]
    assert words[4:-2] == expected
    assert not list(runner.folder.rglob("*pwned*"))
    assert runner.uses(model="m", python=str(installed), install="none", args='"open') == 2
    assert "::error title=compress::args: No closing quotation" in runner.said


@pytest.mark.parametrize("text", [*HOSTILE, "eval", "--index-url=http://127.0.0.1:9/"])
def test_hostile_pythons_and_requirements_install_and_run_nothing(runner: Runner, installed: Path, text: str) -> None:
    temporary = {"RUNNER_TEMP": str(installed.parents[2])}  # where that Python is found, and nothing made anew
    runner.variables = {"PIP_NO_INDEX": "1", "SEEN": str(runner.folder / "seen"), **temporary}
    assert runner.uses(model="m", python=text, install="none") == 5
    assert runner.uses(model="m", python=sys.executable, install=text) != 0
    assert not (runner.folder / "seen").exists()
    assert not list(runner.folder.rglob("*pwned*"))
    assert runner.outputs["install"] == {}


def test_what_lies_in_the_working_folder_is_not_the_program(runner: Runner, installed: Path) -> None:
    (runner.workspace / "compressor").mkdir()
    (runner.workspace / "compressor" / "__main__.py").write_text("raise SystemExit(99)")
    (runner.workspace / "json.py").write_text("raise SystemExit(98)")
    assert seen(runner, installed, model="m")[-1] == "m"


@pytest.fixture
def demo(runner: Runner) -> Runner:
    """Give a repository with the demo model, its calibration data and a recipe with one rung."""
    for folder in ("recipes", "calibration_data"):
        (runner.workspace / folder).mkdir()
    shutil.copy(ROOT / "examples" / "digits.onnx", runner.workspace)
    shutil.copy(ROOT / "calibration_data" / "digits_calibration.npz", runner.workspace / "calibration_data")
    (runner.workspace / "recipes" / "digits.yaml").write_text(
        "version: 1\nrungs:\n  - name: int8\n    stages:\n      - quantize: {scheme: static, backend: onnxruntime}\n"
        "gates:\n  - size: {max: 1MB}\nlimits: {measure: 1s}\n"
    )
    runner.variables = {"MLFLOW_TRACKING_URI": "none"}
    return runner


def compressed(runner: Runner) -> int:
    return runner.uses(
        model="digits.onnx", recipe="recipes/digits.yaml", python=sys.executable, install="none", args="--quiet"
    )


@pytest.mark.slow
def test_a_model_that_meets_its_gates_is_green(demo: Runner) -> None:
    assert compressed(demo) == 0, demo.said
    assert "::" not in demo.said
    assert demo.value("verdict") == "pass"
    assert demo.value("chosen") in {"int8", "baseline"}  # on a CPU whose integers are slow
    artifact = Path(demo.value("artifact"))
    assert artifact.is_relative_to(demo.workspace / "reports" / "digits")
    assert int(demo.value("size-bytes")) == artifact.stat().st_size
    before = (demo.workspace / "digits.onnx").stat().st_size
    assert float(demo.value("ratio")) == pytest.approx(before / artifact.stat().st_size, rel=1e-5)
    report = json.loads(Path(demo.value("report")).read_text())
    ratio = report["trials"][0]["measurement"]["speedup"]["ratio"]
    assert demo.value("speedup") == ("" if demo.value("chosen") == "baseline" else f"{ratio:.6g}")
    assert demo.value("model-version") == ""
    assert (demo.folder / "summary.md").read_text().startswith("## digits: pass\n\n**Pass:** ")


@pytest.mark.slow
def test_a_budget_that_cannot_be_met_is_red_at_its_line(demo: Runner) -> None:
    recipe = demo.workspace / "recipes" / "digits.yaml"
    recipe.write_text(recipe.read_text().replace("limits", "  # the budget\n  - latency: {p99: 1us}\nlimits"))
    assert compressed(demo) == 3, demo.said
    (told,) = [line for line in demo.said.splitlines() if line.startswith("::")]
    assert re.match(r"::error file=recipes/digits\.yaml,line=9,title=latency p99 not met \((int8|baseline)\)::", told)
    assert demo.value("verdict") == "fail"
    assert demo.value("artifact") == ""
    assert Path(demo.value("folder"), "report.xml").is_file()
    summary = (demo.folder / "summary.md").read_text()
    assert summary.startswith("## digits: fail")
    assert "| latency p99 | not met |" in summary
