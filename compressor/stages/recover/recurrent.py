"""LSTM, GRU and RNN in torch, one step of time after another.

Another kind of cell is a function of one step here, in the table at the foot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compressor.stages.recover.call import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from compressor.stages.recover.call import Operator, Tensor

_PLAIN: dict[str, int | None] = {"clip": None, "input_forget": 0, "layout": 0}
_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_PLACES = {"X": 0, "W": 1, "R": 2, "B": 3, "sequence_lens": 4, "initial_h": 5, "initial_c": 6, "P": 7}


@dataclass(frozen=True)
class _Cell:
    """Weights of one direction: of the input, of the state, and the bias of each; gates are stacked along axis 0."""

    w: Tensor
    r: Tensor
    wb: Tensor
    rb: Tensor


def _recurrent(call: Call, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    import torch

    given: dict[str, Any] = {name: inputs[at] if at < len(inputs) else None for name, at in _PLACES.items()}
    _check(call, given)
    runs = [_run(call, given, direction) for direction in range(given["W"].shape[0])]
    ys, *states = zip(*runs, strict=True)
    return (torch.stack(ys, 1), *(torch.stack(each) for each in states))


def _check(call: Call, given: dict[str, Any]) -> None:
    for setting, value in _PLAIN.items():
        call.need(only=call.get(setting, value) == value, why=f"{setting} cannot be followed")
    for name in ("sequence_lens", "P"):
        call.need(only=given[name] is None, why=f"its input {name} cannot be followed")
    plain = _ACTIVATIONS[call.operator]
    found = [name.lower() for name in call.get("activations", plain)]
    call.need(only=found == [*plain] * (len(found) // len(plain)), why="its activations cannot be followed")


def _run(call: Call, given: dict[str, Any], direction: int) -> tuple[Tensor, ...]:
    """Give the state after each step, in the order of the input, and the last state."""
    import torch

    x, cell = given["X"], _cell(given, direction)
    start = x.new_zeros(x.shape[1], given["R"].shape[2])
    names = ("initial_h", "initial_c")[: 2 if call.operator == "LSTM" else 1]
    state = tuple(start if given[name] is None else given[name][direction] for name in names)
    backward = direction == 1 or call.get("direction", "forward") == "reverse"
    inputs, ys = x @ cell.w.T + cell.wb, []
    for step in reversed(inputs) if backward else inputs:
        state = _STEPS[call.operator](call, cell, step, *state)
        ys.append(state[0])
    return (torch.stack(ys[::-1] if backward else ys), *state)


def _cell(given: dict[str, Any], direction: int) -> _Cell:
    w, r = given["W"][direction], given["R"][direction]
    bias = w.new_zeros(2 * len(w)) if given["B"] is None else given["B"][direction]
    return _Cell(w, r, bias[: len(w)], bias[len(w) :])


def _lstm(_call: Call, cell: _Cell, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    i, o, f, new = (x + h @ cell.r.T + cell.rb).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * new.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(call: Call, cell: _Cell, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    (xz, xr, xn), (wz, wr, wn), (bz, br, bn) = (each.chunk(3, axis) for each, axis in _thirds(cell, x))
    z, r = (xz + h @ wz.T + bz).sigmoid(), (xr + h @ wr.T + br).sigmoid()
    hidden = r * (h @ wn.T + bn) if call.get("linear_before_reset", 0) else (r * h) @ wn.T + bn
    return ((1 - z) * (xn + hidden).tanh() + z * h,)


def _rnn(_call: Call, cell: _Cell, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return ((x + h @ cell.r.T + cell.rb).tanh(),)


def _thirds(cell: _Cell, x: Tensor) -> tuple[tuple[Tensor, int], ...]:
    return (x, -1), (cell.r, 0), (cell.rb, 0)


_STEPS: dict[str, Callable[..., tuple[Tensor, ...]]] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
OPERATORS: dict[str, Operator] = dict.fromkeys(_STEPS, _recurrent)
