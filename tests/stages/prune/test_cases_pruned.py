"""Graphs that broke other tools: each is pruned like any other, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from pruned import feeds, hold, run, some

from compressor import graph
from compressor.errors import InputError, RungError
from compressor.stages import Prune
from compressor.stages.prune import importance
from compressor.stages.prune.groups import Coupled, analyse

# What can be pruned where the manifest says something of it: units, and indices that a unit has in which weights.
GROUPS = {
    "51_residual_dw_se_classifier": [12, 4],
    "52_conv_flatten_gemm": [8],
    "70_planted_dead_flatten": [8],
    "72_odd_channel_counts": [67, 131],
}


def cases(shared: Path) -> dict[str, Any]:
    manifest = yaml.safe_load((shared / "cases" / "manifest.yaml").read_text(encoding="utf-8"))
    return {Path(case["file"]).parts[0].removesuffix(".onnx"): case for case in manifest["cases"]}


@pytest.mark.shared
def test_each_case_is_pruned_or_refused_with_a_sentence(shared: Path, tmp_path: Path) -> None:
    refused = {}
    for name, case in cases(shared).items():
        try:
            coupled = opened(shared / "cases" / case["file"], tmp_path)
        except InputError as error:
            refused[name] = str(error)
            continue
        if coupled is None or case["expect"] == "nondeterministic" or name == "36_string_output":
            continue  # quantized already; outputs that do not repeat, or no numbers
        for share in (0.25, 0.5, 1.0):
            hold(coupled, some(coupled, share), tmp_path, feeds(tmp_path / "model.onnx", 8))
    assert set(refused) == {name for name, case in cases(shared).items() if case["expect"] == "refuse"}


@pytest.mark.shared
@pytest.mark.parametrize("name", GROUPS)
def test_channels_that_go_together_are_those_that_the_case_names(name: str, shared: Path, tmp_path: Path) -> None:
    coupled = opened(shared / "cases" / f"{name}.onnx", tmp_path)
    assert coupled is not None
    assert [len(group.units) for group in coupled.groups] == GROUPS[name]


@pytest.mark.shared
def test_each_channel_before_a_flatten_owns_its_block_of_columns(shared: Path, tmp_path: Path) -> None:
    coupled = opened(shared / "cases" / "52_conv_flatten_gemm.onnx", tmp_path)
    assert coupled is not None
    (group,) = coupled.groups
    columns = [units for (name, _), units in coupled.units.items() if (name, 1) in group.slices and len(units) == 128]
    assert columns
    for units in columns:
        assert units.tolist() == np.repeat(group.units, 16).tolist()


@pytest.mark.shared
@pytest.mark.parametrize("ratio", ["25%", "50%"])
def test_dead_channels_before_a_flatten_go_first_and_nothing_is_lost(
    ratio: str, shared: Path, tmp_path: Path, apply: Any
) -> None:
    opened(shared / "cases" / "70_planted_dead_flatten.onnx", tmp_path)
    model = graph.open_model(tmp_path / "model.onnx")
    path, did = apply(Prune(ratio=ratio, of="channels", multiple=1), model)
    given = feeds(path)
    for wanted, found in zip(run(model.path, given), run(path, given), strict=True):
        assert np.abs(found - wanted).max() < 1e-5
    kept = {group.name: group.kept for group in did.pruned.groups if not group.stay}
    assert list(kept.values()) == [{"25%": 6, "50%": 4}[ratio]]
    sizes = [list(tensor.dims) for tensor in onnx.load(path).graph.initializer]
    assert [size for size in sizes if 16 * {"25%": 6, "50%": 4}[ratio] in size]
    assert path.stat().st_size < model.size_bytes


@pytest.mark.shared
def test_odd_channel_counts_become_multiples(shared: Path, tmp_path: Path, apply: Any) -> None:
    opened(shared / "cases" / "72_odd_channel_counts.onnx", tmp_path)
    _, did = apply(Prune(ratio="20%"), graph.open_model(tmp_path / "model.onnx"))
    assert all(group.kept % 8 == 0 for group in did.pruned.groups if not group.stay and group.kept < group.channels)
    assert any(group.kept < group.channels for group in did.pruned.groups if not group.stay)


@pytest.mark.shared
def test_one_that_is_quantized_in_part_is_refused(shared: Path, tmp_path: Path, apply: Any) -> None:
    graph.normalise(shared / "cases" / "23_partly_qdq_already.onnx", tmp_path / "model.onnx")
    with pytest.raises(RungError, match="quantized already"):
        apply(Prune(ratio="20%", multiple=1), graph.open_model(tmp_path / "model.onnx"))


@pytest.mark.shared
def test_channels_stay_before_statistics_of_the_batch(shared: Path, tmp_path: Path) -> None:
    coupled = opened(shared / "cases" / "32_batchnorm_training_mode.onnx", tmp_path)
    assert coupled is not None
    assert not coupled.groups
    assert coupled.frozen[0].reasons == ("BatchNormalization 'bn_train' is in training mode",)


@pytest.mark.shared
def test_channels_whose_kernel_is_zero_but_not_their_bias_are_not_dead(shared: Path, tmp_path: Path) -> None:
    coupled = opened(shared / "cases" / "21_dead_channels_with_bias.onnx", tmp_path)
    assert coupled is not None
    tensors = onnx.load(tmp_path / "model.onnx").graph.initializer
    kernel = next(t for t in tensors if len(t.dims) == 4 and t.dims[0] == 8)
    without = ~onnx.numpy_helper.to_array(kernel).any((1, 2, 3))
    assert without.sum() == 3
    (group,) = coupled.groups
    assert (importance.by_norm(coupled)[list(group.units)][without] > 0).all()


def opened(path: Path, folder: Path) -> Coupled | None:
    """Analyse a case in normal form; None where it is quantized."""
    graph.open_model(path)
    graph.normalise(path, folder / "model.onnx")
    return None if graph.is_quantized(folder / "model.onnx") else analyse(graph.load(folder / "model.onnx"))
