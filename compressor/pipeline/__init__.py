"""Where the parts meet: `run` climbs the ladder and writes the report, `publish` records it.

`work` holds what runs in children, `climb` the ladder, `choose` which rung is taken, `look` describes without
compressing. A step of a rung is added in `climb`.
"""

from __future__ import annotations

from compressor.pipeline.look import Inspected, Machine, doctor, inspect
from compressor.pipeline.run import Request, Result, prepare, publish, run

__all__ = ["Inspected", "Machine", "Request", "Result", "doctor", "inspect", "prepare", "publish", "run"]
