"""ONNX Runtime's own quantizer: `MODEL FEEDS OUT static|recommended|dynamic`.

`static` and `dynamic` take every default. `recommended` is what its documentation asks for on x86: pre-processing, Q/DQ
pairs, U8 activations and S8 weights, one scale a channel; symbolic shapes are left out where they fail.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from feeds import Feeds, Folder
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


@dataclass(frozen=True)
class Reader(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    """Feeds as the quantizer takes them."""

    left: Iterator[Feeds]

    def get_next(self) -> Feeds | None:
        """Give the next feed, None behind the last."""
        return next(self.left, None)


def prepare(model: str, prepared: str) -> None:
    """Infer shapes and optimise."""
    try:
        quant_pre_process(model, prepared)
    except Exception:  # noqa: BLE001 - it raises nothing narrower where its inference of symbolic shapes fails
        quant_pre_process(model, prepared, skip_symbolic_shape=True)


def main(model: str, folder: str, out: str, mode: str) -> None:
    """Quantize one model."""
    if mode == "dynamic":
        quantize_dynamic(model, out)
    elif mode == "static":
        quantize_static(model, out, Reader(iter(Folder(folder))))
    else:
        prepared = str(Path(out).with_suffix(".prepared.onnx"))
        prepare(model, prepared)
        unsigned, signed = QuantType.QUInt8, QuantType.QInt8
        quantize_static(
            prepared, out, Reader(iter(Folder(folder))), per_channel=True, activation_type=unsigned, weight_type=signed
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
