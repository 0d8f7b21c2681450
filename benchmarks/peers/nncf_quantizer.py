"""NNCF's post-training quantization: `MODEL FEEDS OUT default|transformer`."""

from __future__ import annotations

import sys

import nncf
import onnx
from feeds import Folder


def main(model: str, folder: str, out: str, mode: str) -> None:
    """Quantize one model."""
    feeds = Folder(folder)
    kind = nncf.ModelType.TRANSFORMER if mode == "transformer" else None
    quantized = nncf.quantize(onnx.load(model), nncf.Dataset(feeds), model_type=kind, subset_size=len(feeds))
    onnx.save(quantized, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
