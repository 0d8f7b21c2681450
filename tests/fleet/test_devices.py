from __future__ import annotations

import re

import pytest

from compressor import fleet
from compressor.engines.tensorrt import provider


def test_names_are_unique_and_fit_for_file_names() -> None:
    names = [device.name for device in fleet.DEVICES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9]+", name) for name in names)
    assert fleet.CURRENT not in names


def test_full_names_are_unique_and_end_in_the_name() -> None:
    full = [device.gpu for device in fleet.DEVICES]
    assert len(set(full)) == len(full)
    for device in fleet.DEVICES:
        assert re.sub("[^a-z0-9]", "", device.gpu.lower()).endswith(device.name)


@pytest.mark.parametrize(
    ("family", "capability"),
    [
        ("t4", (7, 5)),  # Turing
        ("a100 a30", (8, 0)),  # Ampere, GA100
        ("a10 a10g rtx3090", (8, 6)),  # Ampere, GA102
        ("l4 l40s rtx4090", (8, 9)),  # Ada
        ("h100 h200", (9, 0)),  # Hopper
        ("rtx5090", (12, 0)),  # Blackwell, GB202
    ],
)
def test_a_capability_has_the_devices_of_its_architecture(family: str, capability: tuple[int, int]) -> None:
    assert " ".join(sorted(device.name for device in fleet.by_capability(capability))) == family


def test_a_capability_that_no_device_has_gives_none() -> None:
    assert fleet.by_capability((8, 7)) == ()


def test_every_device_is_found_by_its_name_alone() -> None:
    assert all(fleet.by_name(device.name) is device for device in fleet.DEVICES)
    assert fleet.by_name("T4") is None
    assert fleet.by_name(fleet.CURRENT) is None


def test_memory_is_that_of_one_device() -> None:
    assert all(8 <= device.memory_gib <= 192 for device in fleet.DEVICES)


def test_all_but_hopper_can_be_built_for_without_a_gpu() -> None:
    alone = {device.name for device in fleet.DEVICES if device.capability not in provider._RTX_CAPABILITIES}
    assert alone == {"h100", "h200"}
