"""Files of public bug reports through the real command: what is made of any of them, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bug_reports import (
    BLOATED,
    INT8,
    LEAST_DB,
    PRUNED_DB,
    QUANTIZED_ALREADY,
    RANDOM,
    REFUSED,
    Run,
    accuracy,
    names,
    worst_db,
)
from onnx import numpy_helper
from whole_run import compress, float_kernels

pytestmark = pytest.mark.shared

TAKEN = {
    "core": ("Conv", "Gemm", "MatMul"),
    "all": ("Conv", "ConvTranspose", "Gemm", "MatMul"),
    "dynamic": ("Gemm", "MatMul"),
    "cut-int8": ("Conv", "Gemm", "MatMul"),
}
"""The operators whose weights each kind of INT8 takes at the least."""


def may_fail(rung: str, reason: str, case: str, model: onnx.GraphProto) -> bool:
    """Tell whether a rung of a case may end without an artifact for this reason."""
    if "takes none of its kind" in reason:
        kind = TAKEN.get(rung)
        return kind is not None and float_kernels(model, kind) == 0
    if "quantized already" in reason:
        return rung.startswith("cut") and case == QUANTIZED_ALREADY
    prunes = rung.startswith("cut") and "of the MACs cannot be pruned" in reason
    return prunes or (rung != "baseline" and "quantized no weight of the model: " in reason)


@pytest.mark.parametrize("case", [name for name in names() if name not in {*REFUSED, RANDOM}])
def test_whatever_is_made_of_a_case_computes_what_the_original_does(
    case: str, run: Run, shared: Path, manifest: Mapping[str, Any]
) -> None:
    ended = run(case)
    assert ended.code in {0, 3, 4}
    assert "Traceback" not in ended.err
    made = ended.artifacts(baseline=True)
    assert made["baseline"]
    for rung, artifact in made.items():
        found_db = worst_db(shared, manifest, case, artifact)
        if rung in {"baseline", *INT8}:
            assert found_db > LEAST_DB.get(case, 20), rung
        elif accuracy(ended.trials[rung]):
            assert found_db > PRUNED_DB, rung
    kinds = {rung for rung in INT8 if rung in made}
    assert kinds or case == BLOATED
    float_model = onnx.load(made["baseline"]).graph
    for rung, trial in ended.trials.items():
        if trial["failure"]:
            assert may_fail(rung, trial["failure"]["reason"], case, float_model), (rung, trial["failure"])


@pytest.mark.parametrize("case", [name for name in names() if name not in {*REFUSED, RANDOM, BLOATED}])
def test_no_scale_is_zero_or_infinite(case: str, run: Run) -> None:
    for artifact in run(case).artifacts().values():
        graph = onnx.load(artifact).graph
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        scaling = [node for node in graph.node if node.op_type in {"QuantizeLinear", "DequantizeLinear"}]
        scales = [arrays[node.input[1]] for node in scaling if node.input[1] in arrays]  # others come at run time
        assert all((scale > 0).all() and np.isfinite(scale).all() for scale in scales)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_sentence(case: str, tmp_path: Path, shared: Path) -> None:
    if not (shared / "cases" / case).is_file():
        pytest.skip("no such case")
    words = ["--registry", "none", "--output", tmp_path / "reports"]
    ended = compress("run", shared / "cases" / case, "--sla", "1s", *words)
    assert ended.code == 2
    assert ended.out == ""
    lines = [line for line in ended.err.splitlines() if line.startswith("compress: ")]
    assert len(lines) == 1
    assert REFUSED[case] in lines[0]
    assert "Traceback" not in ended.err
    assert not ended.report
    assert not any(tmp_path.iterdir())


def test_no_case_is_forgotten(manifest: Mapping[str, Any]) -> None:
    assert set(names()) == set(manifest)
    assert {case for case, entry in manifest.items() if entry["expect"] == "refuse"} == set(REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in names() if name not in {*REFUSED, RANDOM}])
def test_what_the_default_ladder_chooses_computes_what_the_original_does(
    case: str, run: Run, shared: Path, manifest: Mapping[str, Any]
) -> None:
    ended = run(case, recipe="limits: {measure: 500ms}\n")
    assert ended.code in {0, 3, 4}
    for rung, artifact in ended.artifacts().items():
        if rung.startswith("int8") or accuracy(ended.trials[rung]):
            found_db = worst_db(shared, manifest, case, artifact)
            assert found_db > (LEAST_DB.get(case, 20) if rung.startswith("int8") else PRUNED_DB), rung
    chosen = ended.report["chosen"]
    if chosen not in {None, "baseline"}:
        assert ended.trials[chosen]["measurement"]["speedup"]["high"] * 1.02 >= 1
