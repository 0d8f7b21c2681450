"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before any test imports onnxruntime
for name in ("CI", "GITHUB_ACTIONS", "GITLAB_CI"):  # what tests run must not tell whoever runs the tests
    os.environ.pop(name, None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Give the folder of real models and data beside the checkout; skip where it is absent."""
    folder = Path(os.environ.get("COMPRESSOR_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip("the folder `shared` with models and data is not beside this checkout")
    return folder
