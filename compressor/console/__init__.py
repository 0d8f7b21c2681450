"""What people see: progress and trials as they come, the verdict at the end. The only package that prints.

Messages go to stderr, results to stdout (`out`). `views` shows events; `planned`, `run`, `proved`, `measured` and
`look` show what commands found. What another command found is shown by a function in one of these.
"""

from __future__ import annotations

from compressor.console.look import inspected, machine
from compressor.console.measured import benched, compared, noise
from compressor.console.out import result, say, table
from compressor.console.planned import plan
from compressor.console.proved import history, judged
from compressor.console.run import engines, exported, kept, verdict
from compressor.console.views import follow

__all__ = [
    "benched",
    "compared",
    "engines",
    "exported",
    "follow",
    "history",
    "inspected",
    "judged",
    "kept",
    "machine",
    "noise",
    "plan",
    "result",
    "say",
    "table",
    "verdict",
]
