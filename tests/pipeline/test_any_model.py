"""Models of every kind through the whole run, their INT8 held against the original by ONNX Runtime and numpy alone."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from odd_models import ODD, Odd
from whole_run import call_here

from compressor import isolation
from compressor.pipeline import Request, prepare, run
from compressor.plan import Job
from compressor.recipe import Recipe, parse

RECIPE = """
version: 1
data: {calibration: {path: data.npz, samples: 32}, evaluation: {path: data.npz}}
registry: {uri: none}
limits: {measure: 1s}
rungs: [{name: int8, stages: [{quantize: {scheme: static}}, fuse]}]
gates: [{latency: {p99: 10s}}, {accuracy: {max_drop: 30%}}]
"""


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pieces of work run here: children would import all vendors again for each of a hundred models."""
    monkeypatch.setattr(isolation, "call", call_here)


@pytest.mark.parametrize("kind", ODD)
def test_a_model_of_any_kind_ends_in_an_artifact_that_is_right(kind: str, tmp_path: Path) -> None:
    odd = ODD[kind]
    path = tmp_path / "model.onnx"
    onnx.save(odd.proto, path)
    np.savez(tmp_path / "data.npz", **odd.feeds(64, seed=1))
    recipe: Recipe = parse(RECIPE.replace("static", odd.scheme), "recipe")
    request = Request(Job(path, recipe, tmp_path / "reports", tmp_path), every=True)

    settled = finished(prepare(request))
    done = finished(run(settled, request))

    (trial,) = done.report.trials
    assert trial.failure is None
    assert done.report.baseline.measurement is not None
    said = " ".join(applied.did for applied in trial.stages)
    assert odd.kept in said
    artifact = done.folder / trial.artifacts[0].files[0].path
    has_integers = any(node.op_type in {"DequantizeLinear", "MatMulNBits"} for node in onnx.load(artifact).graph.node)
    assert has_integers == (not odd.kept), said
    for name, db in against(path, artifact, odd).items():
        assert db > (20 if has_integers else 100), f"{name}: {db:.1f} dB"


def finished(steps: Generator[Any, Any, Any]) -> Any:
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        return stop.value


def against(path: Path, artifact: Path, odd: Odd) -> Mapping[str, float]:
    """Give the SQNR in dB of each output over samples that nothing has seen; of what is no float, 5 % may differ."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    before, after = (
        onnxruntime.InferenceSession(str(p), options, providers=["CPUExecutionProvider"]) for p in (path, artifact)
    )
    assert [(x.name, x.type) for x in before.get_inputs()] == [(x.name, x.type) for x in after.get_inputs()]
    assert [(x.name, x.type) for x in before.get_outputs()] == [(x.name, x.type) for x in after.get_outputs()]
    batch = before.get_inputs()[0].shape[0]
    n = batch if isinstance(batch, int) else 8
    feeds = odd.feeds(n, seed=2)
    if odd.whole:
        feeds = {name: np.asarray(array[0]) for name, array in feeds.items()}
    pairs = zip(before.run(None, feeds), after.run(None, feeds), strict=True)
    return {x.name: distance(*pair) for x, pair in zip(before.get_outputs(), pairs, strict=True)}


def distance(wanted: Any, found: Any) -> float:
    if isinstance(wanted, list):
        assert len(wanted) == len(found)
        if isinstance(wanted[0], dict):
            assert [set(one) for one in wanted] == [set(one) for one in found]
            pairs = [
                (np.array(list(one.values())), np.array([two[key] for key in one]))
                for one, two in zip(wanted, found, strict=True)
            ]
        else:
            pairs = list(zip(wanted, found, strict=True))
        return min(distance(*pair) for pair in pairs)
    assert wanted.shape == found.shape
    assert wanted.dtype == found.dtype
    if wanted.dtype.kind != "f":
        return 300.0 if np.mean(wanted != found) <= 0.05 else -300.0
    noise = np.sum((wanted.astype(np.float64) - found) ** 2)
    return float(10 * np.log10(np.sum(wanted.astype(np.float64) ** 2) / noise)) if noise else 300.0
