"""What a `.pt2` could make this machine do: all but what is known to be harmless is refused before anything loads it.

Such a file is a zip of tensors, a pickle and JSON, and all but the tensors can be code: torch 2.13 loads pickles in
full where the safe way refuses them, evaluates expressions with sympy's `sympify`, imports what a description of
containers names, and compiles names, keys and guards. Another member is a line in `_MEMBERS`, another field of text
one in `_RULES`; what stands in neither is refused.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import types
import typing
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from compressor.errors import InputError
from compressor.export.text import is_arithmetic, is_constant, is_name, is_operator, is_plain, is_tree

_ROOT = "program"
_EXTRA = "extra/"  # what a caller stores beside the program, of no use here
_PICKLE, _GRAPH = "data/sample_inputs/model.pt", "models/model.json"
_CONFIGS = {
    "data/weights/model_weights_config.json": "weight_",
    "data/constants/model_constants_config.json": "tensor_",
}
_MEMBERS = re.compile(
    rf"archive_format|archive_version|byteorder|\.data/(version|serialization_id)|{re.escape(_PICKLE)}|{_GRAPH}"
    rf"|{'|'.join(map(re.escape, _CONFIGS))}|data/weights/weight_[0-9]+|data/constants/tensor_[0-9]+"
)
_LEFT_OUT: Mapping[str, Any] = {"guards_code": [], "metadata": {}}
_NOT_FINITE = ("Infinity", "-Infinity", "NaN")
_RULES: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(("name", "as_name", "forward_arg_names", "as_string_to_argument", "type"), is_name),
    **dict.fromkeys(("tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values"), is_name),
    **dict.fromkeys(("opset_version", "verifiers"), is_name),
    **dict.fromkeys(("parameter_name", "buffer_name", "tensor_constant_name", "user_input_name"), is_plain),
    **dict.fromkeys(("fqn", "torch_version", "config", "path_name"), is_plain),
    **dict.fromkeys(("target", "as_operator"), is_operator),
    **dict.fromkeys(("as_string", "as_strings"), is_constant),
    **dict.fromkeys(("expr_str", "range_constraints"), is_arithmetic),
    "in_spec": lambda text: is_tree(text, called=True),
    "out_spec": is_tree,
}
"""What text in the fields of torch's schema may be; so may the keys of tables in them."""


def check_file(path: Path) -> None:
    """Return if there is such a file.

    Raises:
        InputError: There is none.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {found}; expected what torch.export.save writes")


def checked_copy(path: Path, out: Path) -> None:
    """Write what was looked at of a `.pt2` to another, which is what is loaded.

    Guards, metadata and what lies beside the program are left out: they are code or of no use for an export.

    Raises:
        InputError: It is no file, or loading it could run code; the sentence names what, and `--trust`.
    """
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(out, "w") as copy:
            members = _members(path, archive)
            for name, member in members.items():
                copy.writestr(f"{_ROOT}/{name}", _checked(path, name, archive.read(member), members))
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RecursionError) as error:
        raise InputError(f"{path}: no readable .pt2 ({error}); expected what torch.export.save writes") from error


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Give the members that torch reads, by their names in the one folder that all of them lie in."""
    listed = archive.infolist()
    names = {member.filename for member in listed}
    packed = any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in listed)
    folders = {member.filename.partition("/")[0] for member in listed}
    trap = packed or len(names) < len(listed) or len(folders) > 1
    if trap or sum(member.file_size for member in listed) > path.stat().st_size:
        raise InputError(f"{path}: no archive as torch.export.save writes it, and could be a trap; save it again")
    members = {member.filename.partition("/")[2]: member for member in listed}
    if other := next((name for name in members if not _MEMBERS.fullmatch(name) and not name.startswith(_EXTRA)), None):
        raise _untrusted(path, f"a member that is none of tensors and a graph ({other})")
    return {name: member for name, member in members.items() if not name.startswith(_EXTRA)}


def _checked(path: Path, name: str, data: bytes, members: Mapping[str, object]) -> bytes:
    """Give the bytes of a member as they may be loaded."""
    from torch._export.serde import schema

    if name == _PICKLE:
        return _unpickled(path, name, data) if data else data
    if name != _GRAPH and name not in _CONFIGS:
        return data
    kind = schema.ExportedProgram if name == _GRAPH else schema.PayloadConfig
    checked = _typed(path, kind, _json(name, data))
    if name in _CONFIGS:
        _refuse_payloads(path, name, checked, members)
    return json.dumps(checked).encode()


def _refuse_payloads(path: Path, name: str, listed: Mapping[str, Any], members: Mapping[str, object]) -> None:
    """Refuse lists of weights and constants that name other members than tensors, or call one a pickle."""
    folder = name.rpartition("/")[0]
    for one in listed.get("config", {}).values():
        file = str(one.get("path_name"))
        if f"{folder}/{file}" not in members or not re.fullmatch(f"{_CONFIGS[name]}[0-9]+", file):
            raise _untrusted(path, f"a list of tensors that names another member ({name}: {file})")
        if one.get("use_pickle") is not False or not one.get("tensor_meta"):
            raise _untrusted(path, f"a tensor that is called a pickle ({folder}/{file})")


def _unpickled(path: Path, name: str, data: bytes) -> bytes:
    """Give a pickle of tensors in containers, written anew, if torch's restricted loader reads no more in it.

    For what that refuses, torch.export.load turns to the full loader; keys in it become source code.
    """
    import torch

    try:
        found = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception as error:  # whatever it is, the full loader would be next
        needed = unsafe_globals(io.BytesIO(data)) or "more than tensors"
        raise _untrusted(path, f"a pickle that needs {needed} ({name})") from error
    if not _is_example(found):
        raise _untrusted(path, f"more than tensors in containers, or keys that torch would run as code ({name})")
    written = io.BytesIO()
    torch.save(found, written)
    return written.getvalue()


def _is_example(value: object) -> bool:
    """Tell whether a value is tensors and plain constants in containers with plain keys."""
    import torch

    if isinstance(value, dict):
        return all(type(key) is int or (type(key) is str and is_plain(key)) for key in value) and all(
            map(_is_example, value.values())
        )
    if isinstance(value, list | tuple):
        return all(map(_is_example, value))
    if isinstance(value, str):
        return is_plain(value)
    return value is None or isinstance(value, torch.Tensor | bool | int | float)


def unsafe_globals(file: Path | io.BytesIO) -> str:
    """Name what a pickle of torch.save would import beside tensors; empty where it cannot be told."""
    import torch

    try:
        return ", ".join(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file))[:5])
    except Exception:  # noqa: BLE001 - of a damaged file nothing can be told
        return ""


def _json(name: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data.decode())
    except ValueError as error:
        raise zipfile.BadZipFile(f"{name} is no JSON") from error
    if not isinstance(found, dict):
        raise zipfile.BadZipFile(f"{name} holds no table")
    return found


def _typed(path: Path, kind: Any, value: Any, field: str = "") -> Any:
    """Give a value of JSON without guards and metadata, if it is of this type of torch's schema throughout."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return None if value is None else _typed(path, parts[0], value, field)
    if origin is list and isinstance(value, list):
        return [_typed(path, parts[0], one, field) for one in value]
    if origin is dict and isinstance(value, dict):
        return {_text(path, field, key): _typed(path, parts[1], one, field) for key, one in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _record(path, kind, value)
    if kind is str and isinstance(value, str):
        return _text(path, field, value)
    is_number = isinstance(value, int | float) and isinstance(kind, type) and issubclass(kind, int | float)
    if is_number or (kind is float and value in _NOT_FINITE):
        return value
    raise _untrusted(path, f"a field that is not what torch writes ({field} {str(value)[:80]!r})")


def _record(path: Path, kind: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    fields = _fields(kind)
    if other := next((name for name in value if name not in fields), None):
        raise _untrusted(path, f"a field that torch does not write ({other[:80]!r})")
    return {
        name: _LEFT_OUT[name] if name in _LEFT_OUT else _typed(path, fields[name], one, name)
        for name, one in value.items()
    }


@cache
def _fields(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {one.name: hints[one.name] for one in dataclasses.fields(kind)}


def _text(path: Path, field: str, text: str) -> str:
    if field not in _RULES or not _RULES[field](text):
        raise _untrusted(path, f"text that torch would run as code: {field} {text[:80]!r}")
    return text


def _untrusted(path: Path, what: str) -> InputError:
    return InputError(
        f"{path}: loading it could run code: it holds {what}; export it from its source (package.module:factory), or "
        "give --trust if you know who made it"
    )
