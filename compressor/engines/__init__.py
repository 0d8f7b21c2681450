"""Engines: what turns a model into files that a server loads, and opens them for measuring.

A new engine is a module here and its class in `Engine`.
"""

from __future__ import annotations

from typing import Annotated

from compressor.engines.onnxruntime import Auto, Onnxruntime
from compressor.grammar import Keyed

Engine = Annotated[Auto | Onnxruntime, Keyed(Auto, Onnxruntime)]

__all__ = ["Auto", "Engine", "Onnxruntime"]
