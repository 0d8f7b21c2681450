"""Nodes that INT8 ruins: found by building with some of them float, and left float for good.

Another way of suspecting nodes stands in `_suspects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from compressor import runtime
from compressor.errors import RungError
from compressor.records import Feeds, Progress, Work
from compressor.stages.quantize.job import Job
from compressor.stages.quantize.layers import effects, layers

FLOOR_DB = 20.0
"""Below it the noise has more than a tenth of the signal's amplitude."""
_MOST_BUILDS = 12
"""The worst node alone takes 3 builds, one of the first four at most 5; where many are ruined another way is better."""
_LOOKED_AT = 4
"""Feeds with which single nodes are looked at, to know where to search first."""
Build = Callable[[Job], None]
"""Quantizes a model as a job says, into its `out`."""


@dataclass(frozen=True)
class Repaired:
    """The job that was built in the end, and what there is to say about it."""

    job: Job
    notes: tuple[str, ...] = ()


def repaired(
    build: Build, job: Job, feeds: Iterable[Feeds], floor_db: float = FLOOR_DB, *, exact: bool = True
) -> Work[Repaired]:
    """Build a job; if an output is then worse than `floor_db`, build it with the fewest nodes float that mend it.

    The measure is `runtime.worst_db` on held-out `feeds`, iterated once a build, with `exact` arithmetic or on the
    kernels of this machine, which can go wrong in ways of their own.
    One that is not finite or has another shape counts as the worst possible. Nodes that must stay float are added to
    the job's `excluded`, each with its reason. If nothing reaches the floor, the best that was found is built.

    Raises:
        RungError: From `build`.
    """
    search = _Search(build, job, feeds, floor_db, exact=exact)
    yield from search.tried(())
    if search.good(()):
        return Repaired(job)
    suspects, hindrances = yield from _suspects(job, feeds)
    chosen = yield from search.fewest(tuple(suspects))
    final = search.job_without({name: search.reason(name, suspects[name]) for name in chosen})
    if search.built != frozenset(chosen):
        build(final)
    return Repaired(final, (*search.notes(chosen), *hindrances))


class _Search:
    """Builds with nodes float, remembering what each of the builds was worth."""

    def __init__(self, build: Build, job: Job, feeds: Iterable[Feeds], floor_db: float, *, exact: bool) -> None:
        self._build = build
        self._exact = exact
        self._job = job
        self._feeds = feeds
        self._floor_db = floor_db
        self._left_db: dict[str, float] = {}  # with this node in INT8 when those before it were float
        self._flaws: dict[frozenset[str], str] = {}
        self.dbs: dict[frozenset[str], float] = {}
        self.built: frozenset[str] = frozenset()  # last

    def tried(self, names: Iterable[str]) -> Work[None]:
        """Build with these nodes float, unless that was done before."""
        key = frozenset(names)
        if key not in self.dbs:
            yield Progress("look for nodes that INT8 ruins", len(self.dbs))
            self._build(self.job_without(dict.fromkeys(key, "")))
            self.built = key
            self.dbs[key] = yield from self._worst_db(key)

    def good(self, names: Iterable[str]) -> bool:
        """Tell whether the build with these nodes float reached the floor."""
        return self.dbs[frozenset(names)] >= self._floor_db

    def job_without(self, reasons: Mapping[str, str]) -> Job:
        """Give the job with these nodes float too."""
        return replace(self._job, excluded={**self._job.excluded, **reasons})

    def fewest(self, suspects: tuple[str, ...]) -> Work[tuple[str, ...]]:
        """Give nodes that reach the floor if float, none of them in vain; the best known if all together do not.

        Again and again the shortest beginning of the suspects that is enough shows that its last is needed.
        """
        yield from self.tried(suspects)
        if not self.good(suspects):
            best, _ = max(self.dbs.items(), key=lambda item: item[1])
            return tuple(sorted(best))
        needed: tuple[str, ...] = ()
        while not self.good(needed):
            end = yield from self._shortest(needed, suspects)
            if self._spent():
                return (*needed, *suspects[:end])
            needed, suspects = (*needed, suspects[end - 1]), suspects[: end - 1]
            yield from self.tried(needed)
        return needed

    def reason(self, name: str, own_db: float | None) -> str:
        """Say why a node stays float."""
        if own_db is not None and own_db < self._floor_db:
            return f"INT8 alone gives {own_db:.1f} dB here"
        if name in self._left_db:
            return f"with it in INT8 the worst output has {self._left_db[name]:.2f} dB, below {self._floor_db:g}"
        return "the search for nodes that INT8 ruins ended before it was cleared"

    def notes(self, chosen: tuple[str, ...]) -> Iterator[str]:
        """Say what was wrong and what has become of it."""
        flaw = self._flaws.get(frozenset(), f"the worst output has {self.dbs[frozenset()]:.1f} dB")
        found = f"with {len(chosen)} more nodes float the worst has {self.dbs[frozenset(chosen)]:.1f} dB"
        short = "" if self.good(chosen) else f", the best that was found, below {self._floor_db:g}"
        yield f"in INT8 {flaw}; {found}{short}"
        if self._spent():
            yield f"the search ended after {_MOST_BUILDS} builds: fewer than {len(chosen)} nodes may have to stay float"

    def _shortest(self, needed: tuple[str, ...], suspects: tuple[str, ...]) -> Work[int]:
        """Give the length of the shortest beginning that is enough beside what is needed.

        Doubled first and bisected then, because it is mostly one or two nodes of many.
        """
        bad, good = 0, len(suspects)
        while good - bad > 1 and not self._spent():
            middle = min(max(1, 2 * bad), (bad + good) // 2)
            names = (*needed, *suspects[:middle])
            yield from self.tried(names)
            bad, good = (bad, middle) if self.good(names) else (middle, good)
        self._left_db[suspects[good - 1]] = self.dbs[frozenset((*needed, *suspects[:bad]))]
        return good

    def _spent(self) -> bool:
        return len(self.dbs) >= _MOST_BUILDS

    def _worst_db(self, key: frozenset[str]) -> Work[float]:
        """Compare what was built last with the float model."""
        try:
            return (yield from runtime.worst_db(self._job.model, self._job.out, self._feeds, exact=self._exact))
        except RungError as error:  # it does not run, or gives something else: as bad as can be, and this is why
            self._flaws[key] = str(error)
            return -runtime.IDENTICAL_DB


def _suspects(job: Job, feeds: Iterable[Feeds]) -> Work[tuple[dict[str, float | None], tuple[str, ...]]]:
    """Give the nodes that the quantizer changed with their own SQNR in dB, and what hindered looking at them.

    First come those that do most to the outputs; last, with None, those that cannot be looked at alone.
    """
    changed = _changed(job)
    few = list(islice(feeds, _LOOKED_AT))
    try:
        found = yield from layers(job.model, job.out, few, real=False)
        effect_db = yield from effects(job.model, job.out, few)
    except RungError as error:  # the file, or a part of it, does not run: any node may be the cause
        return dict.fromkeys(changed), (f"no layer could be looked at by itself: {error}",)
    own_db = {layer.name: layer.exact_db for layer in found}
    known = sorted(effect_db.keys() & changed, key=lambda name: (effect_db[name], name))
    return {name: own_db.get(name) for name in dict.fromkeys([*known, *changed])}, ()


def _changed(job: Job) -> list[str]:
    """Give the names of the float model's nodes that are gone or read something else in what was built."""
    import onnx

    before, after = (onnx.load(path, load_external_data=False).graph.node for path in (job.model, job.out))
    kept = {(node.name, node.op_type, *node.input) for node in after}
    changed = [node.name for node in before if (node.name, node.op_type, *node.input) not in kept]
    return [name for name in changed if name not in job.excluded]
