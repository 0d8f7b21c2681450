"""Runs that are killed, two at once, stopped by signals, on disks that are full or damaged: nothing is lost."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import demo
import numpy as np
import pytest
import whole

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Calm:
    """What an undisturbed run leaves: its recipe with nothing left open, the models by rung, the steps that it said."""

    folder: Path
    recipe: Path
    wanted: Mapping[str, str]
    steps: tuple[str, ...]


def ended(run: demo.Run) -> tuple[int, str]:
    """Give exit code and stderr of a run, which leaves no process."""
    code, _ = run.ended()
    assert run.left() == []
    return code, run.stderr.read_text()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    folder = tmp_path_factory.mktemp("calm")
    run = demo.start(folder, demo.recipe(folder, ["int8-fused"]))
    code, said = ended(run)
    assert code == 0, said
    (recipe,) = (folder / "reports").glob("*/*/recipe.yaml")
    wanted = whole.artifacts(folder / "reports")
    assert set(wanted) == {"baseline", "int8-fused"}
    assert whole.faults(folder / "reports", wanted) == set()
    return Calm(folder, recipe, wanted, tuple(re.findall(r"^ *[\d.]+ s  ([^;\n]+)$", said, re.MULTILINE)))


@pytest.fixture
def copied(calm: Calm, tmp_path: Path) -> Path:
    """Give a copy of the reports of the undisturbed run, with its store; no registry."""
    shutil.copytree(calm.folder / "reports", tmp_path / "reports")
    return tmp_path


@pytest.fixture
def namespace() -> Callable[[str], list[str]]:
    """Give a function that makes a command of one of the shell, which mounts what it likes and then runs the rest."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount in a namespace of their own")
    return lambda script: [unshare, "-rm", "sh", "-ec", f'{script}\n"$@"', "sh"]


def test_five_kills_leave_nothing_half_and_the_last_run_is_as_an_undisturbed_one() -> None:
    script = Path(demo.__file__).with_name("chaos.py")
    done = subprocess.run([sys.executable, script, "--kills", "5"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^5 kills, \d of them before the run ended; 0 faults\.", done.stdout, re.MULTILINE), done.stdout


def test_two_runs_at_once_in_one_folder_and_one_registry_both_end_right(calm: Calm, tmp_path: Path) -> None:
    runs = [demo.start(tmp_path, calm.recipe, mark=mark) for mark in ("one", "two")]
    for run in runs:
        code, said = ended(run)
        assert code == 0, said
    output = tmp_path / "reports"
    reports = [json.loads(path.read_text()) for path in output.glob("*/*/report.json")]
    assert [report["chosen"] for report in reports] == ["int8-fused"] * 2
    assert whole.faults(output, calm.wanted) | whole.leftovers(output) == set()
    assert whole.registered(tmp_path / "registry.db", "digits") == set()


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_a_signal_ends_leaves_a_report_of_what_was_done_and_the_next_goes_on(
    calm: Calm, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    chance = np.random.default_rng(code)
    climbing = slice(calm.steps.index("baseline: score"), calm.steps.index("int8-fused: measure"))  # ends in a moment
    step = chance.choice(calm.steps[climbing])
    run = demo.start(tmp_path, calm.recipe, "signalled")
    while run.step() != step:
        assert run.process.poll() is None, run.stderr.read_text()
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 0.5))
    run.process.send_signal(sent)
    assert run.process.wait(timeout=60) == code
    assert run.left() == []
    output = tmp_path / "reports"
    report = whole.report(output)
    assert sent.name in report["unfinished"], step
    assert str(next(output.glob("*/*/report.md"))) in re.sub(r"\s+", "", run.stderr.read_text())
    assert whole.faults(output, calm.wanted) | whole.leftovers(output) == set()
    done, said = ended(demo.start(tmp_path, calm.recipe, "again"))
    assert done == 0, said
    assert whole.artifacts(output) == calm.wanted
    assert whole.report(output).get("unfinished") is None
    assert whole.registered(tmp_path / "registry.db", "digits") == set()


@pytest.mark.parametrize("file", ["model.onnx", "entry.json"])
def test_a_flipped_byte_in_the_store_is_noticed_said_and_made_again(calm: Calm, copied: Path, file: str) -> None:
    output = copied / "reports"
    entries = sorted((output / whole.STORE).glob(f"*/{file}"))
    assert entries
    for path in entries:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    code, said = ended(demo.start(copied, calm.recipe))
    assert code == 0, said
    assert "damaged" in said
    assert any("damaged" in warning for warning in whole.report(output)["warnings"])
    assert whole.artifacts(output) == calm.wanted
    assert whole.faults(output, calm.wanted) | whole.leftovers(output) == set()


@pytest.mark.parametrize("size_kb", [4500, 5500, 7000])
def test_a_disk_that_fills_up_ends_the_run_with_a_sentence_and_what_was_finished(
    calm: Calm, tmp_path: Path, namespace: Callable[[str], list[str]], size_kb: int
) -> None:
    (reports := tmp_path / "reports").mkdir()
    (kept := tmp_path / "kept").mkdir()
    script = f"mount -t tmpfs -o size={size_kb}k none {reports}\ntrap 'cp -r {reports}/. {kept}' EXIT"
    code, said = ended(demo.start(tmp_path, calm.recipe, before=namespace(script)))
    assert code == 5, said
    assert "no space left" in said.lower()
    assert f"compress: {demo.MODEL}" not in said, "the model's disk is not full"
    assert "Traceback" not in said
    report = whole.report(kept)
    assert "no space left" in report["unfinished"].lower()
    assert whole.faults(kept, calm.wanted) | whole.leftovers(kept) == set()


def test_a_disk_with_hardly_any_room_ends_the_run_at_once(
    calm: Calm, tmp_path: Path, namespace: Callable[[str], list[str]]
) -> None:
    (reports := tmp_path / "reports").mkdir()
    mounted = namespace(f"mount -t tmpfs -o size=1m none {reports}")
    code, said = ended(demo.start(tmp_path, calm.recipe, before=mounted))
    assert code == 5, said
    assert "no space left" in said
    assert "Traceback" not in said
    assert "baseline" not in said, "no work was begun"


def test_a_full_disk_for_temporary_files_ends_the_run_with_a_sentence(
    calm: Calm, tmp_path: Path, namespace: Callable[[str], list[str]]
) -> None:
    (temporary := tmp_path / demo.TEMPORARY).mkdir()
    mounted = namespace(f"mount -t tmpfs -o size=8k none {temporary}")
    code, said = ended(demo.start(tmp_path, calm.recipe, before=mounted))
    assert code == 5, said
    assert "TMPDIR" in said
    assert list((tmp_path / "reports").iterdir()) == []


@pytest.mark.parametrize("existing", [False, True])
def test_a_folder_of_reports_that_may_only_be_read_is_refused_before_any_work(
    calm: Calm, copied: Path, namespace: Callable[[str], list[str]], *, existing: bool
) -> None:
    if not existing:
        shutil.rmtree(copied / "reports")
        (copied / "reports").mkdir()
    before = sorted((copied / "reports").rglob("*"))
    script = f"mount --bind {copied}/reports {copied}/reports\nmount -o remount,ro,bind {copied}/reports"
    code, said = ended(demo.start(copied, calm.recipe, before=namespace(script)))
    assert code == 5, said
    assert "--output" in said
    assert "baseline" not in said, "no work was begun"
    assert sorted((copied / "reports").rglob("*")) == before
    assert not (copied / "registry.db").exists()


def damage_report(run: Path) -> None:
    (run / "report.json").write_text((run / "report.json").read_text()[:-9])


def damage_model(run: Path) -> None:
    (run / "artifacts/baseline/model.onnx").write_bytes(b"half")


def damage_array(run: Path) -> None:
    (path := next(run.glob("raw/*.npy"))).write_bytes(path.read_bytes()[:-1])


def damage_settings(run: Path) -> None:
    (run / "artifacts/baseline/session.json").write_text("{")


def remove_array(run: Path) -> None:
    next(run.glob("raw/*.npy")).unlink()


def damage_entry(run: Path) -> None:
    (path := next((run.parents[1] / whole.STORE).glob("*/model.onnx"))).write_bytes(path.read_bytes()[:-1])


def remove_manifest(run: Path) -> None:
    next((run.parents[1] / whole.STORE).glob("*/entry.json")).unlink()


@pytest.mark.parametrize(
    "damage",
    [damage_report, damage_model, damage_array, damage_settings, remove_array, damage_entry, remove_manifest],
)
def test_the_judge_sees_damage(calm: Calm, copied: Path, damage: Callable[[Path], Any]) -> None:
    (report,) = (copied / "reports").glob("*/*/report.json")
    assert whole.faults(copied / "reports", calm.wanted) == set()
    damage(report.parent)
    assert whole.faults(copied / "reports", calm.wanted)


def test_the_judge_sees_processes_that_live_on(calm: Calm, tmp_path: Path) -> None:
    run = demo.start(tmp_path, calm.recipe, before=["sh", "-c", "(sleep 60 &) ; exit 0"])
    assert run.ended()[0] == 0
    assert len(run.left(0)) == 1
    (alone,) = run.living()
    alone.kill()
    assert run.left() == []
