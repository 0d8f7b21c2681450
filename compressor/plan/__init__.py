"""The plan: a recipe settled against a model, its data and this machine; every avoidable error is raised here.

`dims` settles shapes, `data` finds and reads samples, `libraries` finds those of custom operators, `points` are the
further batch sizes and shapes, `threads` warns of too many, `original` runs the model, `make` puts it together.
`explained` says what a plan comes to, with how long it takes by `estimate`. What a run must know before its
first minute of work is a field of `Plan`.
"""

from __future__ import annotations

from compressor.plan.data import Origin
from compressor.plan.explained import Explained, explained
from compressor.plan.libraries import libraries
from compressor.plan.make import Job, Plan, make
from compressor.plan.points import Point
from compressor.plan.threads import oversubscribed

__all__ = ["Explained", "Job", "Origin", "Plan", "Point", "explained", "libraries", "make", "oversubscribed"]
