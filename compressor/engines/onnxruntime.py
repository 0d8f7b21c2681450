"""The engine that is always there: the ONNX file itself, with the session options to run it.

Session options are fields of `Onnxruntime`.
"""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import BaseModel, Field

from compressor import graph, runtime, workspace
from compressor.records import Artifact, Model, Session

_NAME = "model.onnx"
"""Whatever the original is called, so that nothing else beside it can have its name."""


class Onnxruntime(BaseModel, frozen=True, extra="forbid"):
    """ONNX Runtime on the CPU. `threads` None: as many as the CPUs that this process may use.

    Spinning is off: it burns a core between requests, and on a busy machine was 2.5 to 3 times slower.
    """

    threads: int | None = Field(default=None, ge=1, le=4096)
    spinning: bool = False

    def resolve(self, cpus_usable: int) -> Onnxruntime:
        """Give the same engine with the number of threads settled."""
        return self.model_copy(update={"threads": self.threads or cpus_usable})

    def build(self, model: Model, folder: Path, run: Path) -> Artifact:
        """Copy the model and its external data into `folder`, a subfolder of the run's folder `run`."""
        started = time.monotonic()
        main, *external = graph.parts(model.path)
        # its tensors know external data by their names
        name = main.name if main.with_name(_NAME) in external else _NAME
        targets = {main: folder / name} | {data: folder / data.relative_to(main.parent) for data in external}
        for source, target in targets.items():
            workspace.copy(source, target)
        files = tuple(workspace.file(target, run) for target in targets.values())
        options = runtime.options(self.threads or 1, spinning=self.spinning)
        return Artifact("onnxruntime", "cpu", files, time.monotonic() - started, options)

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
