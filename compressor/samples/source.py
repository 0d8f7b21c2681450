"""Which reader serves a path: a file, a folder, a zip, or the name of a function.

A new kind of source is a branch of `opened`; a new suffix of files in a folder one of `_folder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from compressor.errors import InputError
from compressor.records import Tensor
from compressor.samples import arrays, functions, images, npy, table
from compressor.samples.archive import Members, members, sha256
from compressor.samples.arrays import Arrays
from compressor.samples.batches import CSV, PARQUET
from compressor.samples.fit import LABELS, Roles, assign, numpy_type
from compressor.samples.pieces import Pieces, pieces
from compressor.samples.preprocess import Preprocess
from compressor.samples.synthetic import Synthetic

Reader = Arrays | Pieces | images.Images | table.Table | functions.Function | Synthetic
SUFFIXES = frozenset({".csv", ".npy", ".npz", ".parquet", ".zip"})
"""Of single files that hold samples."""
_EXPECTED = (
    "a .csv, .npy, .npz or .parquet file, a folder or .zip of images, .npy or .npz files, or package.module:function"
)
_SOUNDS = (".aac", ".aiff", ".au", ".flac", ".m4a", ".mp3", ".ogg", ".opus", ".wav", ".wma")


@dataclass(frozen=True)
class Opened:
    """A reader, what its arrays are for, how images are prepared, and the hash of all."""

    reader: Reader
    roles: Roles
    preprocess: Preprocess | None
    sha256: str


def opened(path: Path, tensors: Sequence[Tensor], preprocess: Preprocess | None) -> Opened:
    """Look at samples for these inputs, without keeping them.

    Raises:
        InputError: There are none, they are damaged, or they do not serve the inputs.
    """
    if not tensors:
        raise InputError(f"{path}: the model has no inputs, so samples cannot serve it; remove data from the recipe")
    for tensor in tensors:
        numpy_type(tensor, f"{path}: ")
    if functions.is_name(path):
        function, roles = functions.function(str(path), tensors)
        return Opened(function, roles, preprocess, function.sha256)
    suffix = path.suffix.lower() if path.is_file() else ""
    if suffix in {CSV, PARQUET}:
        rows, roles = table.table(path, tensors)
        return Opened(rows, roles, preprocess, sha256(path))
    if not path.is_dir() and suffix not in SUFFIXES:
        found = f"a file {path.suffix or 'without suffix'}" if path.exists() else "nothing there"
        raise InputError(f"{path}: expected {_EXPECTED}, found {found}")
    with members(path) as held:
        if suffix in {".npy", ".npz"}:
            reader, roles = _arrays(path, held, {n.removesuffix(npy.SUFFIX): n for n in held.sizes}, tensors)
            return Opened(reader, roles, preprocess, sha256(path))
        return _folder(path, held, tensors, preprocess)


def _folder(path: Path, held: Members, tensors: Sequence[Tensor], preprocess: Preprocess | None) -> Opened:
    if held.names(*images.SUFFIXES):
        _check_single(path, tensors, "images")
        pictures, notes = images.images(path, held, tensors[0])
        pixels = preprocess and preprocess.model_copy(update={"layout": "nhwc"})
        return Opened(pictures, Roles({tensors[0].name: pictures.columns[0]}, None, notes), pixels, sha256(path))
    own, feeds = held.names(npy.SUFFIX), held.names(".npz")
    if own and feeds:
        raise InputError(f"{path}: holds .npy and .npz files ({own[0]}, {feeds[0]}), expected one kind")
    if not own and not feeds:
        raise InputError(f"{path}: {_nothing(held)}")
    if own and (whole := _whole(own, tensors)):
        reader, roles = _arrays(path, held, whole, tensors)
        return Opened(reader, roles, preprocess, sha256(path))
    if own:
        _check_single(path, tensors, "arrays that are not named after the inputs")
    files, roles = pieces(path, held, tensors, own or feeds)
    return Opened(files, roles, preprocess, sha256(path))


def _nothing(held: Members) -> str:
    if sounds := held.names(*_SOUNDS):
        return (
            f"holds sound files such as {sounds[0]}, which are not decoded; save each waveform as the model takes it, "
            "for instance numpy.save(name, soundfile.read(file)[0])"
        )
    return "holds no image and no array; expected files such as .png, .jpg, .npy or .npz"


def _whole(names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, str]:
    """Give the files by the names of their arrays if those are the model's inputs or labels; else nothing."""
    for stem in (lambda name: name[: -len(npy.SUFFIX)], lambda name: PurePosixPath(name).stem):
        files = {stem(name): name for name in names}
        named = all(tensor.name in files for tensor in tensors) or any(name in files for name in LABELS)
        if named and len(files) == len(names):
            return files
    return {}


def _arrays(path: Path, held: Members, files: dict[str, str], tensors: Sequence[Tensor]) -> tuple[Arrays, Roles]:
    files = {name: member for name, member in files.items() if member.lower().endswith(npy.SUFFIX)}
    if not files:
        raise InputError(f"{path}: holds no arrays; expected one for each input of the model, named after it")
    columns = arrays.columns(held, files)
    try:
        roles = assign(columns, tensors)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    used = tuple(dict.fromkeys(roles.inputs.values()))
    return Arrays(path, used, roles.label, files), roles


def _check_single(path: Path, tensors: Sequence[Tensor], what: str) -> None:
    if len(tensors) > 1:
        names = ", ".join(repr(tensor.name) for tensor in tensors)
        raise InputError(
            f"{path}: {what} serve one input, the model has {names}; give an .npz file, or a folder of .npz"
        )
