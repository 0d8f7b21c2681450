"""How samples are divided for stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from compressor.records import Tensor
from compressor.samples import Samples, synthetic
from compressor.stages.supply import divided

KEPT = Path("kept")


def samples(n: int) -> Samples:
    return synthetic((Tensor("x", "float32", (1, 4)),), {"x": (1, 4)}, n, 0, {})


@pytest.mark.parametrize(("n", "held_out"), [(16, 3), (80, 16), (1000, 16)])
def test_a_fifth_is_held_out_and_16_at_most(n: int, held_out: int) -> None:
    supply = divided(samples(n), 0, KEPT, steady=True)
    assert (len(supply.calibration), len(supply.held_out)) == (n - held_out, held_out)
    assert not set(supply.calibration.indices) & set(supply.held_out.indices)


def test_of_fewer_than_16_all_serve_for_both() -> None:
    supply = divided(samples(15), 0, KEPT, steady=False)
    assert len(supply.calibration) == 15
    assert supply.calibration == supply.held_out
    assert not supply.steady
