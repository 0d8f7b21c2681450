"""Training of a network on what the original says: no labels, few steps, the best weights on samples held out.

How the learning rate goes is `_rate`; what a step does is `_step`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from compressor import machine
from compressor.errors import RungError
from compressor.records import Feeds, Outputs, Progress, Work
from compressor.samples import Samples
from compressor.stages.recover.batches import Run, agrees, asked, joined, shuffled, takes_many, tensors, varied
from compressor.stages.recover.interpreter import Network
from compressor.stages.recover.loss import Loss, of_outputs

if TYPE_CHECKING:
    import torch

    from compressor.stages.recover.call import Tensor

BATCH = 64
"""Samples a step."""
_ACTIVATION_BYTES = 500_000_000
"""What the values of the samples that go through a network at once may take; a step goes in as many parts as needed."""
_HIGHEST_RATE = 2e-4
"""Five times that undid, in a minute, what least squares had repaired."""
_WARM_UP = 10
_LARGEST_GRADIENT = 1.0
_CHECKS = 4
_UNTOLD = 0.1
"""Part of the time in which the pace is not looked at."""
_SEED = 0


@dataclass(frozen=True)
class Limit:
    """When training ends: after so many steps or seconds, whichever is first."""

    steps: int
    seconds: float


@dataclass(frozen=True)
class Trained:
    """How many steps were done, and what the divergence on held-out samples was before and is at best.

    `skipped`: steps whose gradient was not finite; `unheard`: feeds drawn of which the original's answer was not.
    """

    steps: int
    seconds: float
    before: float
    best: float
    skipped: int
    unheard: int


@dataclass(frozen=True)
class Pair:
    """A network beside the original that it learns from. `width`: how many feeds the network takes at once.

    `many`: the original takes as many; else it is asked for each feed.
    """

    network: Network
    original: Run
    loss: Loss
    width: int
    many: bool

    def lessons(self, feeds: Iterable[Feeds]) -> Iterator[tuple[int, Tensor]]:
        """Give the divergence of as many feeds as the network takes, and how many they are, until all are seen.

        Left out are feeds of which the original's answer is not finite.
        """
        rest = iter(feeds)
        while part := list(islice(rest, self.width)):
            heard, wanted = self._heard(part)
            if heard:
                yield len(heard), self.loss(tensors(wanted), self.network(tensors(joined(heard))))

    def divergence(self, feeds: Iterable[Feeds]) -> float:
        """Give the divergence from the original, averaged over the feeds."""
        import torch

        with torch.no_grad():
            found = [(n, n * _positive(loss)) for n, loss in self.lessons(feeds)]
        return sum(loss for _, loss in found) / sum(n for n, _ in found)

    def compared(self, wanted: Outputs, found: Outputs) -> float:
        """Give the divergence of outputs that were computed elsewhere."""
        return _positive(self.loss(tensors(wanted), tensors(found)))

    def _heard(self, feeds: Sequence[Feeds]) -> tuple[Sequence[Feeds], Outputs]:
        """Give the feeds that the original has finite answers to, and the answers."""
        wanted = asked(self.original, feeds, many=self.many)
        if self.loss.hears(wanted):
            return feeds, wanted
        heard = [feed for feed in feeds if self.loss.hears(self.original(feed))] if len(feeds) > 1 else []
        return heard, asked(self.original, heard, many=self.many) if heard else {}


def paired(network: Network, original: Run, changed: Run, feeds: Sequence[Feeds], per_feed: int) -> Pair:
    """Set a network beside the original once it is sure that it computes what the changed model does.

    Args:
        network: The changed model in torch.
        original: The original, run by ONNX Runtime.
        changed: The changed model, run by ONNX Runtime.
        feeds: A few that it is not trained on; what is compared is chosen by them.
        per_feed: How many samples a feed has.

    Raises:
        RungError: The network computes something else, or no output is of finite floats.
    """
    loss = of_outputs(map(original, feeds))
    heard = list(islice((feed for feed in feeds if loss.hears(original(feed))), 2))
    if not heard:
        raise RungError("for no sample are all outputs of the original finite")
    found = network(tensors(heard[0]))
    _check(changed(heard[0]), _arrays(found))
    if not any(found[name].requires_grad for name in loss.outputs):
        raise RungError("no weight of 32-bit floats has a say in an output of floats that varies")
    width = 1
    if len(heard) > 1 and takes_many(lambda feed: _run(network, feed), heard):
        fitting = _ACTIVATION_BYTES // max(network.footprint_bytes(tensors(heard[0])), 1)
        width = max(1, min(BATCH // per_feed, fitting))
    return Pair(network, original, loss, width, width > 1 and takes_many(original, heard))


def distilled(pair: Pair, samples: Samples, held: Iterable[Feeds], limit: Limit) -> Work[Trained]:
    """Train the weights of the network towards the original; they end as the best that were seen.

    If the time suffices for all steps, they give the same weights again on the same machine.
    """
    import torch

    torch.manual_seed(_SEED)
    torch.set_num_threads(machine.cpus_usable())
    weights = pair.network.weights
    before = lowest = pair.divergence(held)
    best = _copied(weights)
    optimiser = torch.optim.Adam(list(weights.values()), lr=_HIGHEST_RATE)
    rng, start, step, total = np.random.default_rng(_SEED), time.monotonic(), 0, limit.steps
    skipped = unheard = 0
    for feeds in shuffled(samples, max(1, BATCH // samples.per_feed), _SEED):
        yield Progress("distilling", step, total)
        finite, heard = _step(pair, optimiser, varied(feeds, rng), _rate(step, total))
        step, skipped, unheard = step + 1, skipped + (not finite), unheard + len(feeds) - heard
        total = _total(step, time.monotonic() - start, limit)
        if step >= total or _is_check(step, total):
            now = pair.divergence(held)
            if now < lowest:
                lowest, best = now, _copied(weights)
        if step >= total:
            break
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(best[name])
    return Trained(step, time.monotonic() - start, before, lowest, skipped, unheard)


def _positive(loss: Tensor) -> float:
    """Give a divergence without what rounding takes it below 0; NaN stays."""
    return max(float(loss), 0.0)


def _check(wanted: Outputs, found: Outputs) -> None:
    for name, array in wanted.items():
        if not agrees(array, found[name]):
            raise RungError(f"output {name!r} comes out otherwise in torch than in ONNX Runtime")


def _run(network: Network, feeds: Feeds) -> Outputs:
    import torch

    with torch.no_grad():
        return _arrays(network(tensors(feeds)))


def _arrays(outputs: Mapping[str, Tensor]) -> Outputs:
    return {name: value.detach().numpy() for name, value in outputs.items()}


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in weights.items()}


def _step(pair: Pair, optimiser: torch.optim.Optimizer, feeds: Sequence[Feeds], rate: float) -> tuple[bool, int]:
    """Change the weights if the gradient is finite; say whether it was, and how many feeds had an answer."""
    import torch

    heard = 0
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    for n, loss in pair.lessons(feeds):
        (loss * (n / len(feeds))).backward()
        heard += n
    norm = torch.nn.utils.clip_grad_norm_(pair.network.weights.values(), _LARGEST_GRADIENT)
    finite = math.isfinite(norm)
    if finite:
        optimiser.step()
    return finite, heard


def _rate(step: int, total: int) -> float:
    """Rise for a few steps, then fall along a cosine to 0."""
    return _HIGHEST_RATE * min(1, (step + 1) / _WARM_UP) * (1 + math.cos(math.pi * step / total)) / 2


def _total(step: int, elapsed_s: float, limit: Limit) -> int:
    """Say how many steps there will be: all, or what can be done in time at the pace so far.

    Early on the pace says little, as the first steps are slow, and would make what can be repeated depend on it.
    """
    if elapsed_s >= limit.seconds:
        return step
    if elapsed_s < limit.seconds * _UNTOLD:
        return limit.steps
    return min(limit.steps, step + math.ceil((limit.seconds - elapsed_s) * step / max(elapsed_s, 1e-9)))


def _is_check(step: int, total: int) -> bool:
    """Tell whether the held-out samples are looked at: after each quarter, and after 1, 2, 4, 8 steps and so on.

    Of few samples more steps can learn what holds for these alone: the best weights come early.
    """
    return not step & (step - 1) or step * _CHECKS // total > (step - 1) * _CHECKS // total
