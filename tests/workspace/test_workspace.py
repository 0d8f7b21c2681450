"""Files of a run."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compressor import workspace

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def test_two_runs_at_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    folders = {workspace.run_folder(tmp_path, "m", NOON) for _ in range(20)}
    assert len(folders) == 20
    assert all(folder.is_dir() and folder.parent == tmp_path / "m" for folder in folders)


@pytest.mark.parametrize(
    ("name", "file"), [("a/b:c d", "a_b_c_d"), ("../..", "model"), ("模型 ø", "模型_ø"), (".hidden", "hidden")]
)
def test_a_name_becomes_a_safe_file_name(name: str, file: str) -> None:
    assert workspace.file_name(name) == file


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    workspace.write_text(target, "old")
    with pytest.raises(RuntimeError), workspace.replacing(target) as temporary:  # noqa: PT012
        temporary.write_text("half of the new")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_is_described_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"123")
    described = workspace.file(tmp_path / "a" / "x", tmp_path)
    assert (described.path, described.size_bytes) == ("a/x", 3)
    assert described.sha256 == hashlib.sha256(b"123").hexdigest()


def test_a_copy_has_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"123")
    workspace.copy(tmp_path / "x", tmp_path / "new" / "y")
    assert (tmp_path / "new" / "y").read_bytes() == b"123"
