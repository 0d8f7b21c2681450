"""What was looked at: a model, or this machine.

A line on either is a row here.
"""

from __future__ import annotations

from compressor.console import out
from compressor.engines.tensorrt.check import Refusal
from compressor.pipeline import Inspected, Machine
from compressor.records import Channels, Tensor
from compressor.units import human_bytes

_NOTHING = "-"


def inspected(seen: Inspected, *, as_json: bool) -> None:
    """Show a model."""
    if as_json:
        out.json(seen)
        return
    model, summary = seen.model, seen.summary
    macs = "not settled: give --shape" if summary.macs is None else f"{summary.macs:,}"
    rows = [
        ("file", f"{model.path} ({human_bytes(summary.size_bytes)})"),
        ("parameters", f"{summary.parameters:,}"),
        ("MACs", macs),
        ("nodes", f"{summary.nodes}: " + ", ".join(f"{n} {kind}" for kind, n in summary.operators.items())),
        ("inputs", ", ".join(map(tensor_line, model.inputs))),
        ("outputs", ", ".join(map(tensor_line, model.outputs))),
        ("opset", ", ".join(f"{domain} {version}" for domain, version in summary.opsets.items())),
        ("could be INT8", f"{summary.int8_share:.0%} of {human_bytes(summary.weight_bytes)} of weights"),
        ("quantized", "yes, already" if summary.quantized else "no"),
    ]
    out.table(("what", "found"), rows)
    if seen.channels is not None:
        _channels(seen.channels)
    if seen.refusals is not None:
        _refusals(seen.refusals)
    out.warn(f"{name} was exported in training mode; export it in inference mode" for name in summary.training)
    if summary.random:
        out.warn([f"random operators ({', '.join(summary.random)}): outputs differ from run to run"])


def machine(seen: Machine, *, as_json: bool) -> None:
    """Show this machine."""
    if as_json:
        out.json(seen)
        return
    saturates = "saturate on U8 x S8: the layers that do get other weights" if seen.saturates else "exact"
    scheme = seen.scheme
    form = f"{scheme.name}: {scheme.activations.upper()} activations a tensor, S8 weights a channel ({scheme.source})"
    extras = (
        f"{name} {'yes' if there else f'no (pip install compressor[{name}])'}" for name, there in seen.extras.items()
    )
    rows = [
        ("CPU", seen.cpu),
        ("instruction sets", " ".join(seen.isa) or "none of interest"),
        ("usable CPUs", str(seen.cpus_usable)),
        ("memory", human_bytes(seen.memory_bytes)),
        ("load", "unknown" if seen.load is None else f"{seen.load:.2f}"),
        ("integer kernels", saturates),
        ("INT8 form", form),
        ("GPU", seen.gpu or "none"),
        ("providers", ", ".join(seen.providers)),
        ("versions", ", ".join(f"{name} {version}" for name, version in seen.versions.items())),
        ("extras", ", ".join(extras)),
        ("engines", "; ".join(f"{name}: {why or 'can be built'}" for name, why in seen.builders.items())),
    ]
    out.table(("what", "found"), rows)


def _channels(groups: tuple[Channels, ...]) -> None:
    """Show which channels can be removed, then which stay."""
    free = [
        (
            group.name,
            f"{group.channels}" + (f" ({group.together} at a time)" if group.together > 1 else ""),
            _NOTHING if group.macs is None else f"{group.macs:.1%}",
            ", ".join(group.layers[1:]) or _NOTHING,
        )
        for group in groups
        if not group.stay
    ]
    if free:
        out.table(("can be pruned: made by", "channels", "of the MACs", "together with those of"), free)
    else:
        out.result("no channels can be pruned")
    stay = [(group.name, str(group.channels), "; ".join(group.stay)) for group in groups if group.stay]
    if stay:
        out.table(("stays: made by", "channels", "because"), stay)


def _refusals(refusals: tuple[Refusal, ...]) -> None:
    """Show what TensorRT would not take."""
    rows = [(one.node or _NOTHING, one.operator or _NOTHING, one.reason) for one in refusals]
    if rows:
        out.table(("TensorRT would refuse", "operator", "because"), rows)
    else:
        out.result("nothing was found that TensorRT would refuse")


def tensor_line(tensor: Tensor) -> str:
    """Write an input or output with its type and shape."""
    shape = "unknown shape" if tensor.shape is None else ", ".join("?" if d is None else str(d) for d in tensor.shape)
    return f"{tensor.name} {tensor.dtype} [{shape}]"
