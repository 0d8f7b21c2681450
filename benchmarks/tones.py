"""Raw pitch accuracy of a model of 360 pitch bins, for `int8.py`.

Source: Kim et al. 2018, CREPE: bins of 20 cents from C1 on, the pitch as their weighted mean around the highest one;
a pitch is right within 50 cents.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

CENTS_OF_FIRST, CENTS_APART = 1997.3794084376191, 20.0  # above 10 Hz
AROUND = 4  # bins on either side
RIGHT_CENTS = 50.0

Floats = npt.NDArray[np.float64]


def raw_pitch_accuracy(outputs: Mapping[str, npt.NDArray[np.float32]], labels: Floats) -> Floats:
    """Give 1 for each frame whose pitch is right, else 0: [n]; labels are in Hz."""
    expected = 1200 * np.log2(labels / 10)
    found = _cents(outputs["pitch_probs"].astype(np.float64))
    return np.asarray(np.abs(found - expected) <= RIGHT_CENTS, np.float64)


def _cents(shares: Floats) -> Floats:
    """Give the pitch of each row."""
    bins = np.arange(shares.shape[1])
    near = np.abs(bins - shares.argmax(axis=1)[:, None]) <= AROUND
    weights = np.where(near, shares, 0)
    return np.asarray(CENTS_OF_FIRST + CENTS_APART * (weights @ bins) / weights.sum(axis=1))
