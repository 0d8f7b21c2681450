"""What was measured without compressing: one model, two of them, or this machine's noise.

A row or a sentence is added in `formats`.
"""

from __future__ import annotations

from compressor import formats, gates
from compressor.console import out
from compressor.gates.busy import busy
from compressor.records import Benched, Compared, Noise


def benched(found: Benched, *, as_json: bool, quiet: bool) -> None:
    """Show what one model takes: the points on stdout, the verdict on stderr."""
    if as_json:
        out.json(found)
    else:
        out.table(formats.benched.POINTS, formats.benched.points(found))
        out.table(("", ""), formats.benched.takes(found))
    if quiet:
        return
    out.warn((*found.warnings, *formats.benched.warnings(found)))
    told = formats.benched.sentence(found)
    out.say(
        f"{found.verdict}: {told}" if found.verdict else told, style=out.STYLES.get(found.verdict or "", ""), wrap=True
    )


def compared(found: Compared, *, as_json: bool, quiet: bool) -> None:
    """Show two models side by side on stdout, and on stderr what that means."""
    speedup = found.after.measurement.speedup
    relation = gates.relation(speedup) if speedup else None
    if as_json:
        out.json(found)
    else:
        out.table(formats.compared.SIDES, formats.compared.sides(found))
        out.result("")
        out.table(formats.compared.DIFFERENCES, formats.compared.differences(found, relation))
        out.result("")
        out.table(formats.compared.GATES, formats.compared.gates(found))
    if quiet:
        return
    out.warn(found.warnings)
    out.say(formats.compared.sentence(found, relation), style=out.STYLES[found.verdict], wrap=True)


def noise(found: Noise, *, as_json: bool) -> None:
    """Show which difference this machine can see."""
    if as_json:
        out.json(found)
        return
    claimed, disturbed = gates.relation(found.speedup) in {"faster", "slower"}, busy(found.speedup)
    out.table(formats.noise.HEADER, formats.noise.rows(found))
    told = formats.noise.sentence(found, claimed=claimed, busy=disturbed)
    out.say(told, style="yellow" if claimed or disturbed else "", wrap=True)
