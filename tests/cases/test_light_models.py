"""The light models of the onnx package, famous networks whose weights are all one number, through the real command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.backend.test
import pytest
from whole_run import compress

RECIPE = "rungs: [{name: int8, stages: [quantize]}]\nlimits: {measure: 300ms}\n"


@pytest.mark.slow
@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_a_network_without_training_ends_in_a_verdict_and_no_success(name: str, data: bool, tmp_path: Path) -> None:  # noqa: FBT001
    model = Path(onnx.backend.test.__file__).parent / "data" / "light" / f"light_{name}.onnx"
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    words = ["--recipe", tmp_path / "recipe.yaml", "--registry", "none", "--output", tmp_path / "reports"]
    if data:
        (graph_input,) = onnx.load(model).graph.input[:1]
        x = np.random.default_rng(0).standard_normal((32, 3, 224, 224)).astype(np.float32)
        np.savez(tmp_path / "data.npz", **{graph_input.name: x})
        words += ["--calibration", tmp_path / "data.npz"]
    ended = compress("run", model, "--sla", "1s", *words)
    assert ended.code in {0, 3, 4}
    assert "Traceback" not in ended.err
    assert ended.report["chosen"] in {None, "baseline"}
    if data:
        assert "gives the same for every sample" in ended.trials["int8"]["failure"]["reason"]
    else:
        assert any("no calibration data" in warning for warning in ended.report["warnings"])
    assert all(path.stat().st_size < 10 * model.stat().st_size for path in ended.artifacts(baseline=True).values())
