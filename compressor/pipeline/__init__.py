"""Where the parts meet: `run` climbs and reports, `build` compiles, `bench` measures one model, `compare` two.

`climb` is the ladder, `choose` says which rung is taken, `subject` what a caller may name, `measuring` what is measured
of any artifact. `making` applies stages, and `reuse` keeps what they made for later runs, which `clean` removes. What
runs in children, called by `steps`, is in `work`, `quality` and `timing`. `look` describes models and the machine. A
step of a rung is added in `climb`.
"""

from __future__ import annotations

from compressor.pipeline.bench import Asked, bench
from compressor.pipeline.build import Engines, build
from compressor.pipeline.clean import Kept, Wanted, clean
from compressor.pipeline.compare import compare
from compressor.pipeline.export import export
from compressor.pipeline.look import Inspected, Machine, doctor, inspect, noise
from compressor.pipeline.run import GOING_ON, Request, Result, prepare, publish, run

__all__ = [
    "GOING_ON",
    "Asked",
    "Engines",
    "Inspected",
    "Kept",
    "Machine",
    "Request",
    "Result",
    "Wanted",
    "bench",
    "build",
    "clean",
    "compare",
    "doctor",
    "export",
    "inspect",
    "noise",
    "prepare",
    "publish",
    "run",
]
