"""NVIDIA GPUs that engines are built for, by the names that cloud providers and people give them.

A new device is a row of `DEVICES`, with its compute capability and memory as NVIDIA states them.
"""

from __future__ import annotations

from dataclasses import dataclass

CURRENT = "current"
"""The device that is in this machine."""


@dataclass(frozen=True)
class Device:
    """A GPU. `capability`: its CUDA compute capability, major and minor. `memory_gib`: of one device."""

    name: str
    gpu: str
    capability: tuple[int, int]
    memory_gib: int


# Source: developer.nvidia.com/cuda-gpus, and the data sheets of the products, read November 2026.
DEVICES = (
    Device("t4", "NVIDIA T4", (7, 5), 16),
    Device("a100", "NVIDIA A100", (8, 0), 40),
    Device("a30", "NVIDIA A30", (8, 0), 24),
    Device("a10", "NVIDIA A10", (8, 6), 24),
    Device("a10g", "NVIDIA A10G", (8, 6), 24),
    Device("rtx3090", "NVIDIA GeForce RTX 3090", (8, 6), 24),
    Device("l4", "NVIDIA L4", (8, 9), 24),
    Device("l40s", "NVIDIA L40S", (8, 9), 48),
    Device("rtx4090", "NVIDIA GeForce RTX 4090", (8, 9), 24),
    Device("h100", "NVIDIA H100", (9, 0), 80),
    Device("h200", "NVIDIA H200", (9, 0), 141),
    Device("rtx5090", "NVIDIA GeForce RTX 5090", (12, 0), 32),
)


def by_name(name: str) -> Device | None:
    """Give the device of this name, or None."""
    return next((device for device in DEVICES if device.name == name), None)


def by_capability(capability: tuple[int, int]) -> tuple[Device, ...]:
    """Give the devices of a compute capability."""
    return tuple(device for device in DEVICES if device.capability == capability)
