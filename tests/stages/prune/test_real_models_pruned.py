from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pruned import Array, hold, some

from compressor import graph
from compressor.stages.prune.groups import analyse

# Model: least units that can be removed, layers of which nothing can, and what else an input must be.
MODELS = {
    "crepe_tiny": (272, {"node_linear"}),
    "efficientnet_lite0": (11024, {"node_linear"}),
    "mlperf_tiny_kws_dscnn_bn": (320, {"/fc/Gemm"}),
    "mlperf_tiny_resnet8_cifar10": (224, {"fc14"}),
    "ppocr_cls": (1338, {"MatMul@0"}),
    "resnet20_cifar10": (400, {"node_linear"}),
    "resnet56_cifar10": (1072, {"node_linear"}),
    "silero_vad_16k_op15": (385, {"/model/encoder/3/reparam_conv/Conv"}),  # read inside an If
    "ultraface_rfb320": (
        1716,
        {f"Conv_{n}" for n in (317, 331, 363, 377, 403, 417, 435, 447)},  # boxes and scores
    ),
}
SAMPLES = 512  # of silero: what it takes at 16 kHz


@pytest.mark.shared
@pytest.mark.parametrize("name", MODELS)
def test_a_pruned_model_is_the_model_without_the_channels(name: str, shared: Path, tmp_path: Path) -> None:
    graph.normalise(shared / "models" / f"{name}.onnx", tmp_path / "model.onnx")
    coupled = analyse(graph.load(tmp_path / "model.onnx"))
    units, frozen = MODELS[name]
    assert sum(len(group.units) for group in coupled.groups) >= units
    assert {one.name for one in coupled.frozen} == frozen
    given = _speech() if name.startswith("silero") else None
    for share in (0.2, 0.5):
        small = hold(coupled, some(coupled, share, seed=1), tmp_path, given)
    assert graph.open_model(small).parameters < 0.7 * graph.open_model(tmp_path / "model.onnx").parameters


def _speech() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    state = np.zeros((2, 1, 128), np.float32)
    return {"input": rng.normal(size=(1, SAMPLES)).astype(np.float32), "state": state, "sr": np.array(16000, np.int64)}
