"""The engine that is always there: the ONNX file itself, with the session options to run it.

Session options are fields of `Onnxruntime`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pydantic import BaseModel, Field

from compressor import graph, runtime, workspace
from compressor.records import Artifact, Model, Session, Shapes, Tensor
from compressor.runtime.session import Provider, check

_NAME = "model.onnx"
"""Whatever the original is called, so that nothing else beside it can have its name."""


class Onnxruntime(BaseModel, frozen=True, extra="forbid"):
    """ONNX Runtime, on the CPU or an NVIDIA GPU. `threads` None: as many as the CPUs that this process may use.

    Feeds and outputs are arrays in the CPU's memory whatever the provider: copies to a GPU and back are measured.
    A provider that is not here is an error and never replaced; nodes that it leaves to another are counted in a note.
    Spinning is off: it burns a core between requests, and on a busy machine was 2.5 to 3 times slower.
    """

    threads: int | None = Field(default=None, ge=1, le=4096)
    spinning: bool = False
    provider: Provider = "cpu"

    def resolve(self, cpus_usable: int) -> Onnxruntime:
        """Give the same engine with the number of threads settled."""
        return self.model_copy(update={"threads": self.threads or cpus_usable})

    def fitted(self, _inputs: Sequence[Tensor], _shapes: Sequence[Shapes]) -> Onnxruntime:
        """Give the same engine: it takes all shapes."""
        return self

    def plain(self, _cpus_usable: int) -> Onnxruntime:
        """Give the engine of the original that all is held against: the same."""
        return self

    def is_timed(self) -> bool:
        """Tell whether latency is measured: always."""
        return True

    def check(self) -> None:
        """Make sure that the provider can be used on this machine.

        Raises:
            MachineError: It is not installed, or one of its libraries or its device is not here.
        """
        check(self.provider)

    @property
    def device(self) -> str:
        """What the provider runs on, as an artifact says it."""
        return "cpu" if self.provider == "cpu" else "cuda"

    def options(self) -> dict[str, str]:
        """Give the session options that an artifact is measured and served with."""
        return runtime.options(self.threads or 1, spinning=self.spinning, provider=self.provider)

    def build(self, model: Model, folder: Path, run: Path) -> Artifact:
        """Copy the model, its external data and libraries of operators into `folder`, below the run's folder `run`.

        Raises:
            MachineError: The provider cannot be used on this machine.
            RungError: The provider refuses the model, or runs none of its nodes.
        """
        started = time.monotonic()
        main, *external = graph.parts(model.path)
        # its tensors know external data by their names
        name = main.name if main.with_name(_NAME) in external else _NAME
        targets = {main: folder / name} | {data: folder / data.relative_to(main.parent) for data in external}
        targets |= {path: folder / path.name for path in runtime.custom_ops.libraries()}
        for source, target in targets.items():
            workspace.copy(source, target)
        files = tuple(workspace.file(target, run) for target in targets.values())
        took, options = time.monotonic() - started, self.options()
        if libraries := runtime.custom_ops.libraries():
            options[runtime.custom_ops.CUSTOM_OPS] = runtime.custom_ops.SEPARATOR.join(path.name for path in libraries)
        notes = () if self.provider == "cpu" else _left(run / files[0].path, options)
        return Artifact("onnxruntime", self.device, files, took, options, notes)

    def open(self, artifact: Artifact, run: Path) -> Session:
        """Load an artifact exactly as it is to be served.

        Raises:
            RungError: ONNX Runtime refuses it.
        """
        return runtime.load(run / artifact.files[0].path, artifact.options)


class Auto(BaseModel, frozen=True, extra="forbid"):
    """The best engine for this machine: ONNX Runtime on the CPU."""

    def resolve(self, cpus_usable: int) -> Onnxruntime:
        """Choose the engine."""
        return Onnxruntime(threads=cpus_usable)


def _left(path: Path, options: dict[str, str]) -> tuple[str, ...]:
    """Tell how many nodes the first provider leaves to each of the others."""
    with closing(runtime.load(path, options)) as session:
        placed = session.placed()
    first, *others = options["providers"].split(",")
    total = sum(nodes.total() for nodes in placed.values())
    return tuple(
        f"{placed[name].total()} of {total} nodes run on {name}, because {first} does not take them: "
        + ", ".join(f"{count} {operator}" for operator, count in placed[name].most_common())
        for name in others
        if name in placed
    )
