"""What both exporters of PyTorch write: see tests/data/exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from pruned import hold, some

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse

FOLDER = Path(__file__).parents[2] / "data" / "exported"
GROUPS = {  # units of each group, channels that a unit has of the first weights it is in
    "attention": [(4, 24), (48, 1)],  # heads with their queries, keys and values; the feed-forward part
    "encoder": [(4, 18), (48, 1)],  # of both layers, which share weights by the seed that PyTorch copies
    "encoder_static": [(4, 18), (48, 1)],
    "groupnorm": [(4, 4), (6, 4)],  # whole groups
    "gru": [(16, 3)],  # both layers begin with the same zeros
    "lstm": [(16, 4)],
    "shuffle": [(8, 1), (8, 1), (8, 1), (12, 1)],
}
TRACED = {"encoder_script"}  # the tracer wrote the number of steps, and merged heads with the open batch, as constants


@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("name", GROUPS)
def test_hidden_units_heads_and_channels_are_found(name: str, exporter: str, tmp_path: Path) -> None:
    coupled = _coupled(f"{name}_{exporter}", tmp_path)
    found = [(len(group.units), group.width) for group in coupled.groups]
    assert found == (GROUPS[name][1:] if f"{name}_{exporter}" in TRACED else GROUPS[name])


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("name", GROUPS)
def test_an_exported_model_is_the_model_without_the_units(
    name: str, exporter: str, share: float, tmp_path: Path
) -> None:
    coupled = _coupled(f"{name}_{exporter}", tmp_path)
    small = hold(coupled, some(coupled, share), tmp_path)
    assert graph.open_model(small).parameters < graph.open_model(tmp_path / "model.onnx").parameters


def _coupled(name: str, folder: Path) -> Coupled:
    graph.normalise(FOLDER / f"{name}.onnx", folder / "model.onnx")
    return analyse(graph.load(folder / "model.onnx"))
