"""Engines: what turns a model into files that a server loads, and opens them for measuring.

A new engine is a module here and its class in `Engine`, and in `Settled` if it is what another one resolves to.
"""

from __future__ import annotations

from typing import Annotated

from compressor.engines.onnxruntime import Auto, Onnxruntime
from compressor.engines.tensorrt import Tensorrt
from compressor.grammar import Keyed

Engine = Annotated[Auto | Onnxruntime | Tensorrt, Keyed(Auto, Onnxruntime, Tensorrt)]
Settled = Onnxruntime | Tensorrt
"""An engine with nothing left open."""

__all__ = ["Auto", "Engine", "Onnxruntime", "Settled", "Tensorrt"]
