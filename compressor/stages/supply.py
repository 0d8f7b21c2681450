"""What stages learn from: samples, and a store in which one keeps what another can use.

What a climb hands to every stage besides the model is a field of `Supply`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compressor import graph, workspace
from compressor.records import Work
from compressor.samples import Samples
from compressor.scratch import scratch
from compressor.workspace import Store

_FEWEST = 16
"""Of fewer samples all calibrate and all check."""
_SHARE_HELD_OUT = 5
_MOST_HELD_OUT = 16
"""As many are looked at whenever something is decided; with more, fewer would calibrate."""


@dataclass(frozen=True)
class Supply:
    """Samples to learn from, others to check on what was learnt, and the store in which one keeps what another can use.

    The two may be the same where there are too few to divide. `kept` is the store's folder, `scope` its scope.
    `steady`: the model agrees with itself when it is run twice; else outputs say nothing about what a stage did.
    `original`: the model as it was given, which all rungs start from; None where no stage needs it.
    """

    calibration: Samples
    held_out: Samples
    kept: Path
    steady: bool = True
    original: Path | None = None
    scope: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells these samples from others: the content of their files, which of them, how they become inputs."""
        both = (self.calibration, self.held_out)
        return self.steady, *((one.source.sha256, tuple(one.indices), repr(one.fits)) for one in both)

    def learnt(self, what: str, model: Path, settings: object, learn: Callable[[Path], Work[None]]) -> Work[Path]:
        """Give the file that `learn` writes of a model from these samples, or wrote before with the same settings."""
        store = Store(self.kept, self.scope)
        parts = [workspace.sha256(part) for part in graph.parts(model)]
        key = store.key(what, settings, parts, self.identity)
        if store.take(key) is None:
            with scratch(self.kept.parent, "learnt") as place:
                (folder := place / key).mkdir()
                yield from learn(folder / what)
                store.put(key, folder, what, {})  # or another process was faster, with the same
        return self.kept / key / what


def divided(samples: Samples, seed: int, kept: Path, *, steady: bool) -> Supply:
    """Set a fifth of the samples apart, 16 at most, to check on what was learnt from the others."""
    if len(samples) < _FEWEST:
        return Supply(samples, samples, kept, steady)
    held_out = min(_MOST_HELD_OUT, len(samples) // _SHARE_HELD_OUT)
    return Supply(*samples.split(len(samples) - held_out, seed), kept, steady)
