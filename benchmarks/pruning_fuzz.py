"""Cut random graphs of every operator, and hold each against the same graph with zeros instead.

    python benchmarks/pruning_fuzz.py --graphs 2000 --seed 0

Prints what was cut and the seeds that failed; exit code 1 if any did.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import onnx

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pruned import feeds, hold, some
from random_graphs import random_graph

SHARES = (0.3, 0.6, 1.0)


def main() -> None:
    """Run all and print counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts, through, failed = Counter[str](), Counter[str](), []
    for seed in range(options.seed, options.seed + options.graphs):
        try:
            _try(seed, counts, through)
        except Exception as error:  # noqa: BLE001 - any failure is a finding, told by its seed
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    print(f"{options.graphs} graphs, {counts['groups']} groups, {counts['units']} units removed, {len(failed)} failed")
    print(f"{len(through)} operators shrank: {', '.join(f'{kind} {n}' for kind, n in sorted(through.items()))}")
    sys.exit(bool(failed))


def _try(seed: int, counts: Counter[str], through: Counter[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        given, model = Path(folder) / "given.onnx", Path(folder) / "model.onnx"
        onnx.save(random_graph(seed), given)
        graph.normalise(given, model)
        coupled = analyse(graph.load(model))
        counts["groups"] += len(coupled.groups)
        through.update(_shrinking(coupled))
        for share in SHARES:
            removed = some(coupled, share, seed)
            counts["units"] += len(removed)
            hold(coupled, removed, Path(folder), feeds(model, 1 + seed % 3, seed))


def _shrinking(coupled: Coupled) -> set[str]:
    """Give the operators through which an axis goes that can shrink."""
    values = {name for (name, _), units in coupled.units.items() if (units >= 0).any()}
    return {n.op_type for n in coupled.model.graph if values & {v.name for v in (*n.inputs, *n.outputs) if v}}


if __name__ == "__main__":
    main()
