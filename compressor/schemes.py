"""What each kind of machine computes fastest and right, INT8 form and channels at once, and where that is known from.

Add a kind of machine as a row of `SCHEMES`, behind all rows that are true of fewer machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

AUTO = "auto"
"""The target that is this machine."""

_MLAS = "onnxruntime, core/mlas/lib/"
_ORT = "ONNX Runtime documentation, Quantize ONNX models, Data type selection"
_MEASURED = "measured with onnxruntime 1.32"


@dataclass(frozen=True)
class Scheme:
    """How weights and activations become 8 bits for one kind of machine. Weights are signed, one scale a channel.

    `isa`: the instruction sets of which one must be there, as `machine.isa` names them; none where it cannot be seen
    from here. `saturates`: the kernels add products of U8 and S8 in pairs in 16 bits, which overflow. `symmetric`: all
    zero points are 0 and biases stay float. `here`: it is the scheme of this machine, on which its speed can be seen.
    `channels`: kernels compute so many at once, and are slow with what is left over.
    """

    name: str
    engine: Literal["cpu", "cuda", "tensorrt"]
    isa: tuple[str, ...]
    activations: Literal["u8", "s8"]
    saturates: bool
    source: str
    symmetric: bool = False
    here: bool = False
    channels: int = 8


_UNSIGNED = f"U8 activations: {_ORT}; {_MEASURED} (signed ones take up to 2.6 times as long on x86)"
_SDOT = f"sdot sums in 32 bits: {_MLAS}aarch64/QgemmS8S8KernelSdot.S."
_SMMLA = f"smmla sums in 32 bits: {_MLAS}aarch64/QgemmS8S8KernelSmmla.S."
# Channels: NchwcGetBlockSize of core/mlas/lib/snchwc.cpp (8, with AVX-512 16); measured by benchmarks/pruning.py.
_SIGNED_SYMMETRIC = "signed INT8, zero point 0, no quantized bias: NVIDIA TensorRT documentation, Explicit quantization"

SCHEMES = (
    Scheme("generic", "cpu", (), "u8", saturates=False, source=f"{_ORT}; no kernel of its own, so exact and slow"),
    Scheme(
        "x86-avx2",
        "cpu",
        ("avx2",),
        "u8",
        saturates=True,
        source=f"vpmaddubsw: {_MLAS}amd64/QgemmU8S8KernelAvx2.asm. {_UNSIGNED}",
    ),
    Scheme(
        "x86-avx512",
        "cpu",
        ("avx512f",),
        "u8",
        saturates=True,
        source=f"vpmaddubsw: {_MLAS}amd64/SymQgemmU8KernelAvx512.asm. {_UNSIGNED}",
        channels=16,
    ),
    Scheme(
        "x86-vnni",
        "cpu",
        ("avx512_vnni", "avx_vnni"),
        "u8",
        saturates=False,
        source=f"vpdpbusd sums in 32 bits: {_MLAS}amd64/SymQgemmU8KernelAvx512.asm. {_UNSIGNED}",
        channels=16,
    ),
    Scheme(
        "x86-amx",
        "cpu",
        ("amx_int8",),
        "u8",
        saturates=False,
        source=f"tdpbusd sums in 32 bits: {_MLAS}qgemm_kernel_amx.cpp. {_UNSIGNED}",
        channels=16,
    ),
    Scheme(
        "arm-dotprod",
        "cpu",
        ("asimddp",),
        "s8",
        saturates=False,
        source=f"{_SDOT} {_ORT}",
    ),
    Scheme(
        "arm-i8mm",
        "cpu",
        ("i8mm",),
        "s8",
        saturates=False,
        source=f"{_SMMLA} {_ORT}",
    ),
    Scheme("cuda", "cuda", (), "s8", saturates=False, source=_SIGNED_SYMMETRIC, symmetric=True, channels=32),
    Scheme("tensorrt", "tensorrt", (), "s8", saturates=False, source=_SIGNED_SYMMETRIC, symmetric=True, channels=32),
)


def by_name(name: str) -> Scheme | None:
    """Give the scheme of this name, or None."""
    return next((scheme for scheme in SCHEMES if scheme.name == name), None)


def of(isa: Iterable[str]) -> Scheme:
    """Give the scheme of a CPU with these instruction sets."""
    found = set(isa)
    return next((scheme for scheme in reversed(SCHEMES) if found & set(scheme.isa)), SCHEMES[0])


def settled(target: str, isa: Iterable[str], *, saturates: bool) -> Scheme:
    """Give the scheme of a target, `auto` for this machine; what its kernels do here is known from the probe.

    Args:
        target: A name that `by_name` knows, or `auto`.
        isa: The instruction sets of this machine.
        saturates: What the saturation probe found on this machine.
    """
    own = of(isa)
    wanted = own if target == AUTO else by_name(target)
    if wanted is None:
        raise ValueError(f"no scheme is named {target!r}")
    return replace(own, saturates=saturates, here=True) if wanted == own else wanted
