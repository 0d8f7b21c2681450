"""The plan: a recipe settled against a model, its data and this machine; every avoidable error is raised here.

`dims` settles shapes, `data` finds and reads samples, `libraries` finds those of custom operators, `points` are the
further batch sizes and shapes, `threads` warns of too many, `make` puts it together. What a run must know before its
first minute of work is a field of `Plan`.
"""

from __future__ import annotations

from compressor.plan.data import Origin
from compressor.plan.libraries import libraries
from compressor.plan.make import Job, Plan, make
from compressor.plan.points import Point
from compressor.plan.threads import oversubscribed

__all__ = ["Job", "Origin", "Plan", "Point", "libraries", "make", "oversubscribed"]
