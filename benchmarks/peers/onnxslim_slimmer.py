"""onnxslim's simplification, which leaves the model float: `MODEL FEEDS OUT`."""

from __future__ import annotations

import sys

import onnxslim


def main(model: str, _: str, out: str) -> None:
    """Slim one model."""
    onnxslim.slim(model, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
