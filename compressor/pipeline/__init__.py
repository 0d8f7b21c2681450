"""Where the parts meet: `run` climbs and reports, `build` compiles, `bench` measures one model, `compare` two.

`gate` judges a report again, `verify` measures what it chose on another machine (`first` finds it), `registered` shows
and promotes versions, `starting` writes a first recipe. `climb` is the ladder, `choose` says which rung is taken,
`subject` what a caller may name, `measuring` what is measured of any artifact, `trying` what a rung must show, `judge`
how it is judged, `champion` what is served now. `making` applies stages, and `reuse` keeps what they made for later
runs, which `clean` removes. What runs in children, called by `steps`, is in `work`, `quality` and `timing`. `look`
describes models and the machine. A step of a rung is added in `climb`, or in `trying` once it is built.
"""

from __future__ import annotations

from compressor.pipeline.bench import Asked, bench
from compressor.pipeline.build import Engines, build
from compressor.pipeline.clean import Kept, Wanted, clean
from compressor.pipeline.compare import compare
from compressor.pipeline.export import export
from compressor.pipeline.gate import Gated, gate
from compressor.pipeline.look import Inspected, Machine, doctor, inspect, noise
from compressor.pipeline.registered import history, promote
from compressor.pipeline.run import GOING_ON, Request, Result, prepare, publish, run
from compressor.pipeline.starting import Started, start
from compressor.pipeline.verify import Proof, verify

__all__ = [
    "GOING_ON",
    "Asked",
    "Engines",
    "Gated",
    "Inspected",
    "Kept",
    "Machine",
    "Proof",
    "Request",
    "Result",
    "Started",
    "Wanted",
    "bench",
    "build",
    "clean",
    "compare",
    "doctor",
    "export",
    "gate",
    "history",
    "inspect",
    "noise",
    "prepare",
    "promote",
    "publish",
    "run",
    "start",
    "verify",
]
