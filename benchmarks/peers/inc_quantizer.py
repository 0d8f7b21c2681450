"""Intel Neural Compressor's static quantization of ONNX models, with its defaults: `MODEL FEEDS OUT`."""

from __future__ import annotations

import sys

from feeds import Feeds, Folder
from onnx_neural_compressor import data_reader
from onnx_neural_compressor.quantization import config, quantize


class Reader(data_reader.CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    """Feeds as the quantizer takes them."""

    def __init__(self, feeds: Folder) -> None:
        """Start at the first."""
        self._feeds = feeds
        self.rewind()

    def get_next(self) -> Feeds | None:
        """Give the next feed, None behind the last."""
        return next(self._left, None)

    def rewind(self) -> None:
        """Start again."""
        self._left = iter(self._feeds)


def main(model: str, folder: str, out: str) -> None:
    """Quantize one model."""
    quantize(model, out, config.StaticQuantConfig(calibration_data_reader=Reader(Folder(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
