"""The model for measuring machines."""

from __future__ import annotations

from pathlib import Path

from compressor import graph


def test_it_is_the_same_each_time_and_of_a_known_size(tmp_path: Path) -> None:
    one, two = (graph.probe(tmp_path / name) for name in ("one.onnx", "two.onnx"))
    assert one.read_bytes() == two.read_bytes()
    assert graph.open_model(one, {"r0": (64, 384)}).macs == 8 * 64 * 384 * 384
