"""The graphs that the onnx package brings, with weights drawn at random: what can be removed of each, and that it can."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from pruned import hold, some

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
