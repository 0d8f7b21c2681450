"""ONNX Runtime in one place: whoever has to run a graph asks here.

`session` opens models (`custom_ops`: with which libraries, `unknown`: why not), `distance` compares the outputs of two,
`profile` times their nodes, `fusion` tells what the graph optimisations made of one (`names`: which node was made of
which), `transformers` fuses more than they do, `half` makes FP16 of a graph, `rounding` computes it on a CPU as a GPU
would, and `kernels` probes this machine. A new question is a function in the module of its kind.
"""

from __future__ import annotations

from compressor.runtime import custom_ops
from compressor.runtime.distance import IDENTICAL_DB, compare, worst_db
from compressor.runtime.fusion import audit
from compressor.runtime.half import halved, largest
from compressor.runtime.kernels import saturates
from compressor.runtime.profile import Times, node_ms, times
from compressor.runtime.rounding import rounded
from compressor.runtime.session import Loaded, check_runs, emulated, load, options, providers
from compressor.runtime.transformers import fuse_transformer

__all__ = [
    "IDENTICAL_DB",
    "Loaded",
    "Times",
    "audit",
    "check_runs",
    "compare",
    "custom_ops",
    "emulated",
    "fuse_transformer",
    "halved",
    "largest",
    "load",
    "node_ms",
    "options",
    "providers",
    "rounded",
    "saturates",
    "times",
    "worst_db",
]
