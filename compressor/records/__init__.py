"""The values that flow through a run, in the order in which they arise: `flow`, `model`, `measured`, `report`.

All are frozen; what is written to report.json is exactly `Report` and what it holds (schema_version 1: fields may be
added, never changed or removed). Add a value where it arises.
"""

from __future__ import annotations

from compressor.records.flow import Array, Feeds, Outputs, Progress, Shapes, Work, relayed
from compressor.records.measured import (
    MINIMUM_EFFECT,
    Bound,
    ClassScore,
    Failure,
    Latency,
    Measurement,
    OutputError,
    Relation,
    Score,
    Speedup,
    Target,
    Timing,
    Trial,
    Verdict,
)
from compressor.records.model import Applied, Artifact, Audit, Candidate, Did, File, Model, Session, Size, Tensor
from compressor.records.report import (
    Benched,
    Compared,
    Comparison,
    Data,
    Environment,
    Noise,
    Original,
    Outcome,
    Registration,
    Report,
    Side,
    Source,
)

__all__ = [
    "MINIMUM_EFFECT",
    "Applied",
    "Array",
    "Artifact",
    "Audit",
    "Benched",
    "Bound",
    "Candidate",
    "ClassScore",
    "Compared",
    "Comparison",
    "Data",
    "Did",
    "Environment",
    "Failure",
    "Feeds",
    "File",
    "Latency",
    "Measurement",
    "Model",
    "Noise",
    "Original",
    "Outcome",
    "OutputError",
    "Outputs",
    "Progress",
    "Registration",
    "Relation",
    "Report",
    "Score",
    "Session",
    "Shapes",
    "Side",
    "Size",
    "Source",
    "Speedup",
    "Target",
    "Tensor",
    "Timing",
    "Trial",
    "Verdict",
    "Work",
    "relayed",
]
