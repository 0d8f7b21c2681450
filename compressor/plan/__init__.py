"""The plan: a recipe settled against a model, its data and this machine; every avoidable error is raised here.

`dims` settles shapes, `data` finds and reads samples, `points` the further batch sizes and shapes, `make` puts it
together. What a run must know before its first minute of work is a field of `Plan`.
"""

from __future__ import annotations

from compressor.plan.make import Job, Plan, make
from compressor.plan.points import Point

__all__ = ["Job", "Plan", "Point", "make"]
