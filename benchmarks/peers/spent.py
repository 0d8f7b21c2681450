"""Runs a command and writes what it took: `OUT.json COMMAND...`.

A small process of its own, for the kernel counts the memory of whoever starts a process as the least that it had.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path


def main(out: str, *command: str) -> int:
    """Write CPU seconds and peak bytes of the largest process, and give the command's exit code."""
    code = subprocess.call(command)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = {"cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024}
    Path(out).write_text(json.dumps(took), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
