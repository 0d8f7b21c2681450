"""What stages learn from: samples, and a folder in which one keeps what another can use.

What a climb hands to every stage besides the model is a field of `Supply`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from compressor import graph, workspace
from compressor.samples import Samples

_FEWEST = 16
"""Of fewer samples all calibrate and all check."""
_SHARE_HELD_OUT = 5
_MOST_HELD_OUT = 16
"""As many are looked at whenever something is decided; with more, fewer would calibrate."""


@dataclass(frozen=True)
class Supply:
    """Samples to learn from, others to check on what was learnt, and a folder shared by the stages of a climb.

    The two may be the same where there are too few to divide. Files in `kept` are named by the content they were made
    from, so that none is taken for another. `steady`: the model agrees with itself when it is run twice; else outputs
    say nothing about what a stage did. `original`: the model as it was given, which all rungs start from; None where
    no stage needs it.
    """

    calibration: Samples
    held_out: Samples
    kept: Path
    steady: bool = True
    original: Path | None = None

    def keeps(self, what: str, model: Path, *settings: object) -> Path:
        """Name the file, there or not, for what is learnt of a model from these samples with these settings."""
        files = [workspace.sha256(part) for part in graph.parts(model)]
        samples = [(s.source.sha256, tuple(s.indices), repr(s.fits)) for s in (self.calibration, self.held_out)]
        digest = hashlib.sha256(repr((settings, files, samples)).encode()).hexdigest()
        return self.kept / f"{what}-{digest[:32]}"


def divided(samples: Samples, seed: int, kept: Path, *, steady: bool) -> Supply:
    """Set a fifth of the samples apart, 16 at most, to check on what was learnt from the others."""
    if len(samples) < _FEWEST:
        return Supply(samples, samples, kept, steady)
    held_out = min(_MOST_HELD_OUT, len(samples) // _SHARE_HELD_OUT)
    return Supply(*samples.split(len(samples) - held_out, seed), kept, steady)
