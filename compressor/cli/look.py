"""`compress inspect` and `compress doctor`: describing a model and this machine.

What they show is added in `pipeline.look`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from compressor.cli import options
from compressor.errors import InputError


def inspect(
    model: options.ModelPath,
    shape: options.Shapes = None,
    prune: Annotated[bool, typer.Option("--prune", help="List channels that can be removed, and what stays.")] = False,  # noqa: FBT002
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="List what TensorRT would refuse: tensorrt, or tensorrt:t4,l4."),
    ] = None,
    as_json: options.Json = False,  # noqa: FBT002
) -> None:
    """Describe a model: parameters, multiply-accumulates, operators, inputs and outputs, what could become INT8."""
    from compressor import console, pipeline
    from compressor.recipe import shapes

    found = pipeline.inspect(model, shapes(shape or ()), prune=prune, devices=_devices(target))
    seen = console.follow(found, quiet=True)
    console.inspected(seen, as_json=as_json)


def doctor(
    noise: Annotated[bool, typer.Option("--noise", help="Measure which difference this machine can see.")] = False,  # noqa: FBT002
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="How long --noise measures.")] = 20,
    as_json: options.Json = False,  # noqa: FBT002
) -> None:
    """Describe this machine: CPUs, instruction sets, whether integer kernels saturate, GPU, versions, extras."""
    from compressor import console, pipeline

    if noise:
        console.noise(console.follow(pipeline.noise(seconds), quiet=as_json), as_json=as_json)
    else:
        console.machine(console.follow(pipeline.doctor(), quiet=True), as_json=as_json)


def _devices(target: str | None) -> tuple[str, ...] | None:
    """Read the devices that a target names, which may be none; None where there is no target.

    Raises:
        InputError: It is another target, or a device that nobody knows.
    """
    from compressor import fleet

    if target is None:
        return None
    name, _, listed = target.partition(":")
    devices = tuple(listed.split(",")) if ":" in target else ()
    known = (fleet.CURRENT, *(device.name for device in fleet.DEVICES))
    if name != "tensorrt" or not set(devices) <= set(known):
        raise InputError(
            f"--target: expected tensorrt, or tensorrt:DEVICE,... with devices out of {', '.join(known)}; "
            f"found {target!r}"
        )
    return devices
