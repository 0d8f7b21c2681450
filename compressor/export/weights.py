"""Weights from a file into a module, with no pickle but of tensors.

Another kind of file is a line in `_read`, another wrapping of a state dict one in `_WRAPPINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from compressor.errors import InputError, MachineError
from compressor.export.scan import unsafe_globals
from compressor.export.users import reason

if TYPE_CHECKING:
    import torch

    State: TypeAlias = Mapping[str, torch.Tensor]

_WRAPPINGS = ("state_dict", "model_state_dict", "model")
_PARALLEL = "module."
_COUNTER = "num_batches_tracked"  # of BatchNorm; older files have none, and nothing that is exported reads it
_SAFE = "write it again with torch.save(model.state_dict(), 'weights.pt'), or as .safetensors"
_POINTER = b"version https://git-lfs"
_SHOWN = 3


def fill(module: torch.nn.Module, path: Path) -> list[str]:
    """Load a file of weights into a module; gives what was odd about the file.

    Raises:
        InputError: It cannot be read safely, or its names or shapes are not the module's.
        MachineError: The file may not be read.
    """
    state, notes = _unwrapped(path, _read(path))
    wanted = module.state_dict()
    if all(name.startswith(_PARALLEL) for name in state) and not any(name.startswith(_PARALLEL) for name in wanted):
        state = {name.removeprefix(_PARALLEL): tensor for name, tensor in state.items()}
        notes.append(f"{path.name}: names of weights begin with {_PARALLEL!r}, as DataParallel writes them: left out")
    _refuse_others(path, wanted, state)
    module.load_state_dict(state, strict=False)
    return notes


def _read(path: Path) -> object:
    try:
        with path.open("rb") as file:
            head = file.read(len(_POINTER))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"{path}: no such file; expected weights as .safetensors or .pt") from error
    except OSError as error:
        raise MachineError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    if not head:
        raise InputError(f"{path}: the file is empty; expected weights as .safetensors or .pt")
    if head == _POINTER:
        raise InputError(f"{path}: a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
    return _safetensors(path) if path.suffix == ".safetensors" else _pickle(path)


def _safetensors(path: Path) -> object:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise MachineError(f"{path}: safetensors is not installed; pip install 'compressor[torch]'") from error
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no readable .safetensors ({reason(error)}); copy or write it again") from error


def _pickle(path: Path) -> object:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what it comes across
        unsafe = unsafe_globals(path)
        found = f"more than tensors ({unsafe})" if unsafe else f"no state dict ({reason(error)})"
        raise InputError(f"{path}: holds {found}, and other pickles are never loaded; {_SAFE}") from error


def _unwrapped(path: Path, found: Any) -> tuple[State, list[str]]:
    """Give the state dict in what was read, and where it lay."""
    import torch

    notes: list[str] = []
    for key in _WRAPPINGS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found, notes = found[key], [*notes, f"{path.name}: the weights are what stands under {key!r}"]
    if not isinstance(found, Mapping) or not found:
        raise InputError(f"{path}: holds {type(found).__name__}, expected a state dict; {_SAFE}")
    if other := next((name for name, value in found.items() if not isinstance(value, torch.Tensor)), None):
        raise InputError(f"{path}: {other!r} is no tensor, expected a state dict; {_SAFE}")
    return found, notes


def _refuse_others(path: Path, wanted: State, state: State) -> None:
    """Refuse weights with other names or shapes than the module's; one of several names for a tensor is enough."""
    given = {_place(tensor) for name, tensor in wanted.items() if name in state}
    missing = [
        name
        for name, tensor in wanted.items()
        if name not in state and _place(tensor) not in given and not name.endswith(_COUNTER)
    ]
    unexpected = [name for name in state if name not in wanted]
    told = [f"{what} {_few(names)}" for what, names in (("lacks", missing), ("also holds", unexpected)) if names]
    if told:
        raise InputError(f"{path}: no weights of this module: it {' and '.join(told)}; give those of the same code")
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            shapes = f"{list(tensor.shape)}, the module expects {list(wanted[name].shape)}"
            raise InputError(f"{path}: {name!r} has the shape {shapes}; give weights of the same code")


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    """Give what is the same of two tensors only where they are all of each other."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
