"""Running a graph piece by piece over samples: what later pieces need lies on disk, one sample is in memory.

What a walk can be asked for is a method of `Walk`.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph, runtime
from compressor.errors import MachineError
from compressor.records import Array
from compressor.samples import Samples
from compressor.stages.prune.groups import captured

if TYPE_CHECKING:
    import onnx_ir as ir

_DISK_BYTES = 4 << 30
"""What a walk stands on takes no more, unless the samples themselves do (twice as much while it moves); of what would,
pieces are computed again."""


class Spool:
    """Arrays of one type on disk, one a feed, that are read in the order in which they were written."""

    def __init__(self, path: Path) -> None:
        """Begin an empty spool."""
        self._path, self._dtype = path, np.dtype(np.float32)
        self.count = self.nbytes = 0

    def add(self, array: Array) -> None:
        """Write the next array.

        Raises:
            MachineError: The disk is full.
        """
        array = array.astype(np.str_) if array.dtype == object else array
        self.count, self.nbytes, self._dtype = self.count + 1, self.nbytes + array.nbytes, array.dtype
        try:
            with self._path.open("ab") as file:
                np.save(file, array, allow_pickle=False)
        except OSError as error:
            raise MachineError(
                f"{self._path}: cannot be written ({error.strerror or error}); what layers read and give waits there: "
                "free some space, or set TMPDIR to a folder that has some"
            ) from error

    def __iter__(self) -> Iterator[Array]:
        """Read all arrays."""
        with self._path.open("rb") as file:
            for _ in range(self.count):
                array = np.load(file, allow_pickle=False)
                yield array.view(self._dtype) if array.dtype.kind == "V" else array  # numpy has no name for bfloat16

    def remove(self) -> None:
        """Free the disk."""
        self._path.unlink()


class Walk:
    """Steps through a graph; where it stands, everything that the rest of the graph needs is on disk."""

    def __init__(self, model: ir.Model, samples: Samples, folder: Path) -> None:
        """Stand at the beginning, with the samples on disk.

        Args:
            model: A graph that is only changed where the walk has not yet been.
            samples: What its inputs are given.
            folder: Where it may write; freed by whoever made it.
        """
        self._model, self._folder, self._numbers = model, Path(tempfile.mkdtemp(dir=folder)), itertools.count()
        self._place = {node.name: i for i, node in enumerate(model.graph)}
        self._values = {value.name: value for value in _values(model.graph)}
        self._reads = _reads(model.graph)
        self._held = {name: self._spool() for name in next(iter(samples))}
        for feed in samples:
            for name, spool in self._held.items():
                spool.add(feed[name])
        self.feeds = max(spool.count for spool in self._held.values())
        self._limit = max(_DISK_BYTES, sum(spool.nbytes for spool in self._held.values())) // self.feeds

    def value(self, name: str) -> ir.Value:
        """Give a value by its name."""
        return self._values[name]

    def place(self, node: str) -> int:
        """Give the place of a node in the order of the graph."""
        return self._place[node]

    def reached(self, value: str) -> int:
        """Give the place behind the node that makes a value; 0 for an input."""
        producer = self._values[value].producer()
        return 0 if producer is None else self._place[producer.name] + 1

    def run(self, wanted: Sequence[str], until: int) -> Iterator[Mapping[str, Array]]:
        """Give these values for each feed; when all were given the walk stands before node `until`, if disk allows.

        Nodes before that, and those that make what is wanted, must be as they shall be.
        """
        live = [name for name, last in self._reads.items() if self.reached(name) <= until <= last]
        spools: dict[str, Spool] | None = None if all(map(self._can_lie, live)) else {}
        for found in self._found(list(dict.fromkeys((*wanted, *live)))):
            if spools is None:
                fits = sum(found[name].nbytes for name in live) <= self._limit
                spools = {name: self._spool() for name in live if name not in self._held} if fits else {}
            for name, spool in spools.items():
                spool.add(found[name])
            yield {name: found[name] for name in wanted}
        if all(name in self._held or name in (spools or ()) for name in live):
            self._move({**self._held, **(spools or {})}, live)

    def _found(self, wanted: Sequence[str]) -> Iterator[Mapping[str, Array]]:
        """Give what is held, and what is wanted, for each feed."""
        missing = [name for name in wanted if name not in self._held]
        feeds = (dict(zip(self._held, arrays, strict=True)) for arrays in zip(*self._held.values(), strict=True))
        if not missing:
            yield from feeds
            return
        with closing(self._session(missing)) as session:
            for feed in feeds:
                yield {**feed, **session(feed)}

    def _session(self, outputs: Sequence[str]) -> runtime.Loaded:
        """Open the part of the graph that makes these of what is held."""
        import onnx_ir as ir

        piece = ir.convenience.extract(self._model.graph, list(self._held), outputs)
        path = self._folder / "piece.onnx"
        graph.save(ir.Model(piece, ir_version=self._model.ir_version), path)
        return runtime.load(path, runtime.options(1, spinning=False))

    def _spool(self) -> Spool:
        return Spool(self._folder / str(next(self._numbers)))

    def _can_lie(self, name: str) -> bool:
        """Tell whether the type of a value is known, and one of numbers."""
        import onnx_ir as ir

        value = self._values[name]
        return isinstance(value.type, ir.TensorType) and value.dtype != ir.DataType.STRING

    def _move(self, spools: Mapping[str, Spool], live: Sequence[str]) -> None:
        for name, spool in spools.items():
            if name not in live:
                spool.remove()
        self._held = {name: spools[name] for name in live}


def _values(main: ir.Graph) -> Iterator[ir.Value]:
    yield from main.inputs
    for node in main:
        yield from node.outputs


def _reads(main: ir.Graph) -> dict[str, int]:
    """Give for each value that nodes read the place of the last of them, constants left out."""
    known = {value.name for value in _values(main)}
    last: dict[str, int] = {}
    for i, node in enumerate(main):
        last |= {v.name: i for v in (*node.inputs, *captured(node)) if v is not None and v.name in known}
    return last
