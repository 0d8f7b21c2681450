"""What became of channels, in the words of records.

What the report says of pruning is added here.
"""

from __future__ import annotations

import numpy as np

from compressor.errors import RungError
from compressor.records import Channels, Model, Pruned, Repaired, Shapes
from compressor.stages.prune import cost
from compressor.stages.prune.groups import Coupled
from compressor.units import write_fraction

_OF = {"macs": "MACs", "channels": "channels that can be removed"}


def counted(coupled: Coupled, removed: frozenset[int], models: tuple[Model, Model], static: Shapes) -> Pruned:
    """Count the model before and after, and its channels."""
    before, after = models
    groups = channels(coupled, removed, static)
    return Pruned(
        macs=(before.macs, after.macs),
        parameters=(before.parameters, after.parameters),
        size_bytes=(before.size_bytes, after.size_bytes),
        nodes=(before.nodes, after.nodes),
        channels=(sum(g.channels for g in groups), sum(g.channels if g.kept is None else g.kept for g in groups)),
        groups=groups,
    )


def channels(coupled: Coupled, removed: frozenset[int] | None, static: Shapes | None) -> tuple[Channels, ...]:
    """List the channels that can be removed, in the order of the graph, then those that stay.

    `removed`: None where nothing was. `static`: shapes of the inputs, for which the multiply-accumulates are counted.
    """
    macs = _shares(coupled, static)
    free = tuple(
        Channels(
            name=group.name,
            channels=group.channels,
            kept=None if removed is None else group.width * len(set(group.units) - removed),
            together=group.width,
            layers=group.makers,
            macs=macs[i] if macs else None,
        )
        for i, group in enumerate(coupled.groups)
    )
    return free + tuple(Channels(f.name, f.channels, layers=(f.name,), stay=f.reasons) for f in coupled.frozen)


def told(pruned: Pruned) -> str:
    """Say in one sentence what went, in every unit in which people count."""
    counts = {"MACs": pruned.macs, "parameters": pruned.parameters, "bytes": pruned.size_bytes}
    gone = [f"{1 - after / before:.1%} of the {what}" for what, (before, after) in counts.items() if before and after]
    cut = [g for g in pruned.groups if g.kept is not None and g.kept < g.channels]
    free = sum(not g.stay for g in pruned.groups)
    channels = f"{pruned.channels[0] - pruned.channels[1]} of {pruned.channels[0]} channels"
    what = f"removed {', '.join(gone)}: {channels}, from {len(cut)} of {free} groups that could be pruned"
    if pruned.asked is not None and pruned.gone is not None:
        of = _OF.get(pruned.of, pruned.of)
        what = f"asked for {write_fraction(pruned.asked)} of the {of}, {pruned.gone:.1%} went; {what}"
    return f"{what}; {mended(pruned.repaired)}" if pruned.repaired else what


def mended(repaired: Repaired) -> str:
    """Say what repairing gained."""
    if not repaired.layers:
        return f"repairing did not help, the outputs are off by {repaired.before:.1%} of their variance"
    layers = f"{repaired.layers} layer{'s' * (repaired.layers > 1)}"
    return (
        f"repaired {layers}, the outputs are off by {repaired.after:.1%} of "
        f"their variance instead of {repaired.before:.1%}"
    )


def _shares(coupled: Coupled, static: Shapes | None) -> list[float] | None:
    try:
        macs = cost.macs(coupled, static)
    except RungError:  # shapes do not settle them, which is no reason to show nothing
        return None
    every = np.diag([len(group.units) for group in coupled.groups])
    return [1 - macs.left(units) / macs.total for units in every] if macs.total else None
