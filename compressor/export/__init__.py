"""From a torch program to an ONNX file. The door to torch, onnxscript and safetensors beside `stages.recover`.

`source` is what the caller names, read without torch; everything else runs in a child, as it imports torch and the
caller's code. `scan` looks at a `.pt2` before anything loads it, `text` at what stands in it, `weights` reads weights,
`program` makes the module and what it is called with, `inputs` draws values, `write` holds the exporters, `verify`
runs what they wrote beside the module, `make` puts these together. Another exporter is a function in `write`.
"""

from __future__ import annotations

from compressor.export.make import Exported, export
from compressor.export.source import Source, is_torch, source

__all__ = ["Exported", "Source", "export", "is_torch", "source"]
