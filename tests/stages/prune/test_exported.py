"""What both exporters of PyTorch write (tests/data/exported): what can be removed of each, and that it can."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pruned import hold, some

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse

FOLDER = Path(__file__).parents[2] / "data" / "exported"
# Groups that must be found, as (units, channels of a unit in the layer that makes it).
HEADS, FEED_FORWARD = (4, 3 * 6), (48, 1)
ENCODER = [HEADS, FEED_FORWARD] * 2
NETS: dict[str, list[tuple[int, int]]] = {
    "attention": [(4, 3 * 8), FEED_FORWARD],
    "encoder": ENCODER,
    "encoder_static": ENCODER,
    "groupnorm": [(4, 4), (6, 4)],  # whole groups of 4 channels
    "gru": [(16, 1)],
    "lstm": [(12, 1), (16, 1), (8, 1)],  # the embedding, one direction, two directions together
    "lstm_stacked": [(16, 1)],  # one tensor holds the initial states of both layers, so that their units go together
    "shuffle": [(8, 1), (8, 1), (8, 1), (12, 1)],  # of the first layer, those that pass and those that are convolved
}


@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("name", NETS)
def test_what_the_network_is_built_of_can_be_removed(name: str, exporter: str, tmp_path: Path) -> None:
    coupled = opened(f"{name}_{exporter}", tmp_path)
    found = Counter((len(group.units), group.width) for group in coupled.groups)
    assert found >= Counter(NETS[name])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("name", NETS)
def test_half_of_every_group_goes(name: str, exporter: str, seed: int, tmp_path: Path) -> None:
    coupled = opened(f"{name}_{exporter}", tmp_path)
    small = hold(coupled, some(coupled, 0.5, seed), tmp_path)
    assert graph.open_model(small).parameters < 0.75 * graph.open_model(tmp_path / "model.onnx").parameters


def test_every_file_is_among_these() -> None:
    assert {path.stem for path in FOLDER.glob("*.onnx")} == {f"{n}_{by}" for n in NETS for by in ("script", "dynamo")}


def opened(name: str, folder: Path) -> Coupled:
    graph.normalise(FOLDER / f"{name}.onnx", folder / "model.onnx")
    return analyse(graph.load(folder / "model.onnx"))
