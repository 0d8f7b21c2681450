"""The fusions of transformers that ONNX Runtime has in Python, into operators that only it knows.

Another kind of transformer is a branch of `_kind`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compressor import graph
from compressor.errors import RungError

if TYPE_CHECKING:
    import onnx

_DOMAIN = "com.microsoft"


def fuse_transformer(path: Path, out: Path) -> Mapping[str, int]:
    """Write the model with attention, normalisation and activation fused; give how many of each operator there are now.

    What the session would fuse at load anyway is not done here. Nothing is written where nothing fuses.

    Raises:
        RungError: A package that the fusions need is missing, or they fail on the graph.
    """
    import onnx

    before = onnx.load(path)
    fused = _fused(onnx.load(path))
    kinds = Counter(_kinds(fused))
    kinds.subtract(_kinds(before))
    made = {kind: n for kind, n in sorted(kinds.items()) if n > 0}
    if made:
        graph.save(graph.inherit(before, fused), out)
    return made


def _fused(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give the model with all that fuses; `model` is used up."""
    import onnx

    try:
        from onnxruntime.transformers import optimizer
    except ImportError as error:
        raise RungError(f"the fusions of transformers need the package {error.name}; install it") from error
    try:
        made = optimizer.optimize_model(model, model_type=_kind(model), opt_level=0).model
    except Exception as error:
        said = " ".join(str(error).split()) or "no message"
        raise RungError(f"ONNX Runtime could not fuse it ({type(error).__name__}: {said[:200]})") from error
    if all(used.domain != _DOMAIN for used in made.opset_import):  # the fusions forget to say so
        made.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return made


def _kind(model: onnx.ModelProto) -> str:
    """Tell text, which comes as numbers of tokens and with a mask, from images, where attention has no mask."""
    import onnx

    integers = {onnx.TensorProto.INT64, onnx.TensorProto.INT32}
    return "bert" if any(value.type.tensor_type.elem_type in integers for value in model.graph.input) else "vit"


def _kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.domain == _DOMAIN or node.op_type == "LayerNormalization"]
