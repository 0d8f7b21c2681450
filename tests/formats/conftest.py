"""The records of `found`, for tests of formats."""

from __future__ import annotations

import found
import pytest

from compressor import records as r


@pytest.fixture
def report() -> r.Report:
    return found.REPORT


@pytest.fixture
def benched() -> r.Benched:
    return found.BENCHED


@pytest.fixture
def compared() -> r.Compared:
    return found.COMPARED
