"""The records of `found`, for tests of formats."""

from __future__ import annotations

import found
import illustrated
import pytest

from compressor import records as r
from compressor.formats import page


@pytest.fixture
def report() -> r.Report:
    return found.REPORT


@pytest.fixture
def benched() -> r.Benched:
    return found.BENCHED


@pytest.fixture
def compared() -> r.Compared:
    return found.COMPARED


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    """Give the page of every report of `illustrated`: drawing them takes seconds."""
    return {name: page.render(report) for name, report in illustrated.EVERY.items()}
