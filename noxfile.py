"""The checks of this project, each in an environment of its own: `nox` runs most, `nox -s tests` one.

Add a check as a function here, and to the sessions that run by default.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "types", "floors", "build", "tests"]  # tests last: their count closes the log

PROJECT = nox.project.load_toml("pyproject.toml")
ROOT = Path(__file__).parent
TYPED = {"filelock", "jinja2", "numpy", "pillow", "pydantic", "rich", "typer"}  # vendor packages are untyped


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    session.install(*_group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, without the vendor packages."""
    dependencies: list[str] = PROJECT["project"]["dependencies"]
    session.install(*_group("lint"), *(needed for needed in dependencies if re.split(r"[<>=,]", needed)[0] in TYPED))
    session.run("mypy")


@nox.session
def floors(session: nox.Session) -> None:
    """Check who imports whom; the sources are read, not imported."""
    session.install(*_group("lint"))
    session.run("lint-imports", "--no-logo")


@nox.session
def build(session: nox.Session) -> None:
    """Build the wheel, install nothing but it, and compress the demo in an empty folder into an empty registry."""
    with tempfile.TemporaryDirectory() as folder:
        session.run("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".")
        (wheel,) = Path(folder).glob("*.whl")
        session.install(str(wheel))
        with session.chdir(folder):
            _demo(session)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests against the installed package, on all cores; arguments after `--` go to pytest."""
    session.install(".", *_group("test"))
    session.run("pytest", "--numprocesses", "auto", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks, which need a folder of models and data; arguments after `--` go to each: --shared FOLDER."""
    session.install(".", *_group("bench"))
    for script in ("aa.py", "open_loop.py"):
        session.run("python", f"benchmarks/{script}")
    for script in ("real_models.py", "memory.py"):
        session.run("python", f"benchmarks/{script}", *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """Kill a run of the demo a hundred times at random moments; arguments after `--`: --seed 1, --kills 10."""
    session.install(".")
    session.run("python", "benchmarks/chaos/chaos.py", "--kills", "100", "--seed", "0", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Meet damaged models, recipes and samples for ten minutes; arguments after `--`: --seed 1, --minutes 2."""
    session.install(".")
    session.run("python", "benchmarks/fuzz/fuzz.py", "--minutes", "10", "--seed", "0", *session.posargs)


def _demo(session: nox.Session) -> None:
    samples = ROOT / "calibration_data"
    session.run(
        *("compress", "run", str(ROOT / "examples" / "digits.onnx"), "--sla", "50ms"),
        *("--calibration", str(samples / "digits_calibration.npz")),
        *("--evaluation", str(samples / "digits_evaluation.npz")),
        *("--registry", "sqlite:///registry.db"),
    )
    with sqlite3.connect("registry.db") as registry:
        versions = registry.execute("SELECT name, version FROM model_versions").fetchall()
    if not versions:
        session.error("the demo registered no model version")
    session.log(f"registered: {versions}")


def _group(name: str) -> tuple[str, ...]:
    return nox.project.dependency_groups(PROJECT, name)
