"""What the report says of each layer alone in INT8."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
import small
import whole_run

from compressor.pipeline import work

RUNG = """
rungs: [{{name: int8, stages: [{{quantize: {{scheme: {}}}}}]}}]
gates: [{{accuracy: {{max_drop: 50%}}}}]
limits: {{measure: 400ms}}
registry: {{uri: none}}
"""


def errors(folder: Path, scheme: str) -> Mapping[str, float]:
    model = small.classifier(folder / "net.onnx")
    (folder / "r.yaml").write_text(RUNG.format(scheme))
    small.data(folder / "net.npz", model, 60, seed=1)
    words = ("--recipe", folder / "r.yaml", "--output", folder / "out", "--calibration", folder / "net.npz")
    ended = whole_run.compress("run", model, *words)
    (stage,) = (stage for stage in ended.trials["int8"]["stages"] if stage["stage"] == "quantize")
    found: Mapping[str, float] = stage["audit"]["errors"]
    return found


def test_each_layer_that_computes_in_int8_has_an_error(tmp_path: Path) -> None:
    found = errors(tmp_path, "static")
    graph = onnx.load(tmp_path / "net.onnx").graph
    kinds = {"Conv", "Gemm", "MatMul"}
    weighted = [
        f"{node.op_type}_{node.output[0]}" for node in graph.node if node.op_type in kinds
    ]  # they have no names
    assert weighted
    assert set(weighted) <= set(found)
    assert all(5 < db < 100 for db in found.values())  # 8 bits of a range give about 40 dB


def test_without_ranges_of_activations_there_is_none(tmp_path: Path) -> None:
    assert errors(tmp_path, "dynamic") == {}


def test_a_large_model_is_not_looked_at_layer_by_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_LARGE_BYTES", 0)
    assert errors(tmp_path, "static") == {}
