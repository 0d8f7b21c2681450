"""What looking at this machine leaves behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pipeline_broken as broken
import pytest
from finished import finish

from compressor.errors import InputError
from compressor.pipeline import look


def test_a_noise_that_crashes_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(look, "_noise", broken.write_and_crash)
    with pytest.raises(InputError, match="doctor --noise: noise failed: the process crashed"):
        finish(look.noise(1.0))
    assert not list(tmp_path.glob("compress-*"))
