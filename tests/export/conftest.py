"""A program of torch.export, saved once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch_nets
from finished import finish

from compressor import isolation
from compressor.isolation import Limits


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the file; its name is that of a folder in it too, and in a folder with a space and a letter like é."""
    path = tmp_path_factory.mktemp("résnet 2") / "models.pt2"
    finish(isolation.call(torch_nets.program, path, limits=Limits()))
    return path
