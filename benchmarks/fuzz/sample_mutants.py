"""Damaged files of samples.

Each function writes a mutant into a folder and gives its path.
"""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
from bases import samples
from model_mutants import NAMES

_SHAPES = ("(24, 6)", "(24,)", "()", "(0, 6)", f"({2**60}, 6)", "(-1, 6)", "(6, 24)", "(True, 6)")
_SHAPES += (
    "(24.0, 6)",
    "[24, 6]",
    "(1" + ",1" * 70 + ")",
    "(24, 6, 1)",
    "None",
    "(24, 6",
    f"({2**31}, {2**33})",
    "('a',)",
    "(" * 300,
)
_TYPES = ("<f4", "<f8", ">f4", "|O", "|b1", "<i8", "<c8", "<U3", "|S4", "<M8[s]", "|V4", "<f2", "f", "x", "<f99", "|u1")
_TYPES += ("<U1000000000", "<f4, <f4", "", "[('a', '<f4')]", "<m8", "|V0", "<U0", "|S0")
_CELLS = ("", "nan", "inf", "1e400", "0x1", "1,5", "'", '"', '""', "NULL", "TRUE", "1" * 400, ",", "\n\n", "1_0")
_SOME = 4


def noise(rng: random.Random, folder: Path) -> Path:
    """Flip, cut or splice bytes of an archive."""
    return _write(_noisy(rng, _packed(rng, _members(rng))), folder / "samples.npz")


def archives(rng: random.Random, folder: Path) -> Path:
    """Damage what zip says of its members: names, sizes, methods, flags; members twice, missing or nested."""
    members = _members(rng)
    data = bytearray(_packed(rng, members))
    for _ in range(rng.randrange(1, _SOME)):
        _flag(rng, data)
    return _write(bytes(data), folder / "samples.npz")


def arrays(rng: random.Random, folder: Path) -> Path:
    """Damage arrays inside of a whole archive: headers, types, shapes, order, values."""
    members = _members(rng)
    name = rng.choice([one for one, _ in members])
    members = [(one, _array(rng, data) if one == name else data) for one, data in members]
    if rng.random() < 0.3:  # noqa: PLR2004
        odd = rng.choice([name, "y.npy", "labels.npy", "x", "a/b.npy", "../x.npy", *NAMES])
        members.append((odd, members[0][1]))
    return _write(_packed(rng, members), folder / "samples.npz")


def array(rng: random.Random, folder: Path) -> Path:
    """Damage a single array in a file of its own."""
    return _write(_array(rng, _members(rng)[0][1]), folder / "samples.npy")


def tables(rng: random.Random, folder: Path) -> Path:
    """Damage the text of a CSV file: its header, cells, separators, quotes, ends of lines."""
    data = bytearray(_table(rng))
    for _ in range(rng.randrange(1, _SOME)):
        at, n = rng.randrange(len(data)), rng.randrange(1, 30)
        match rng.randrange(5):
            case 0:
                data[at] = rng.choice(b'",;\t\n\r\0e-x \xff9')
            case 1:
                del data[at : at + n]
            case 2:
                data[at:at] = data[at : at + n]
            case 3:
                data[at:at] = rng.choice([*_CELLS, *NAMES]).encode()
            case 4:
                del data[at:]
        data = data or bytearray(b"\n")
    return _write(bytes(data), folder / "samples.csv")


def frames(rng: random.Random, folder: Path) -> Path:
    """Damage the bytes of a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    stream, held = io.BytesIO(), samples(rng)
    columns = {**{f"x_{i}": column for i, column in enumerate(held["x"].T)}, "label": held["label"]}
    parquet.write_table(pa.table(columns), stream)
    return _write(_noisy(rng, stream.getvalue()), folder / "samples.parquet")


def _table(rng: random.Random) -> bytes:
    held = samples(rng)
    rows = [
        ",".join([*map(str, row.tolist()), str(label)]) for row, label in zip(held["x"], held["label"], strict=True)
    ]
    return "\n".join([",".join([*(f"x_{i}" for i in range(6)), "label"]), *rows, ""]).encode()


def _members(rng: random.Random) -> list[tuple[str, bytes]]:
    return [(f"{name}.npy", _saved(array)) for name, array in samples(rng).items()]


def _saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=array.dtype.hasobject)
    return stream.getvalue()


def _packed(rng: random.Random, members: list[tuple[str, bytes]]) -> bytes:
    stream, method = io.BytesIO(), rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(stream, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that stand twice
        for name, data in members:
            archive.writestr(name or "empty", data)  # zipfile writes no empty name
    return stream.getvalue()


def _noisy(rng: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.randrange(1, _SOME)):
        at, n = rng.randrange(len(data)), rng.randrange(1, 64)
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + n] = rng.randbytes(n)
            case 2:
                del data[at : at + n]
            case 3:
                data[at:at] = rng.randbytes(n)
            case 4:
                del data[at:]
        data = data or bytearray(b"\0")
    return bytes(data)


def _flag(rng: random.Random, data: bytearray) -> None:
    """Change a field of a member's local header or of its line in the directory."""
    mark, fields = rng.choice(
        [
            (b"PK\x03\x04", {4: "H", 6: "H", 8: "H", 14: "I", 18: "I", 22: "I", 26: "H", 28: "H"}),
            (b"PK\x01\x02", {6: "H", 8: "H", 10: "H", 16: "I", 20: "I", 24: "I", 28: "H", 30: "H", 38: "I", 42: "I"}),
            (b"PK\x05\x06", {4: "H", 8: "H", 10: "H", 12: "I", 16: "I", 20: "H"}),
        ]
    )
    places = [at for at in range(len(data)) if data[at : at + 4] == mark]
    if not places:
        return
    at, kind = rng.choice(list(fields.items()))
    value = rng.choice([0, 1, 8, 9, 12, 14, 99, 0xFFFF, 2**31, 2**32 - 1, 0x0801, rng.randrange(2**16)])
    limit = 2 ** (8 * struct.calcsize(kind)) - 1
    struct.pack_into(f"<{kind}", data, rng.choice(places) + at, min(value, limit))


def _array(rng: random.Random, data: bytes) -> bytes:
    array = np.load(io.BytesIO(data))
    made = {
        "bytes": lambda: _noisy(rng, data),
        "header": lambda: _headed(rng, data),
        "type": lambda: _saved(array.astype(rng.choice(["f8", ">f4", "f2", "i8", "u1", "?", "U8", "S4", "c8"]))),
        "order": lambda: _saved(np.asfortranarray(array)),
        "objects": lambda: _saved(np.array([{"a": 1}, "x", None] * 8, object)),
        "value": lambda: _saved(_changed(rng, array)),
        "shape": lambda: _saved(
            rng.choice([array[:0], array[:1], array[None], array[..., None], np.zeros_like(array)])
        ),
        "more": lambda: data + rng.randbytes(rng.randrange(1, 9)),
    }
    return made[rng.choice([*made, "header"])]()


def _changed(rng: random.Random, array: np.ndarray) -> np.ndarray:
    flat = array.copy().reshape(-1)
    flat[rng.randrange(flat.size)] = rng.choice([0, 1, np.nan, np.inf, 3e38] if flat.dtype.kind == "f" else [0, -1])
    return flat.reshape(array.shape)


def _headed(rng: random.Random, data: bytes) -> bytes:
    """Write another header before the same numbers."""
    kind, shape = rng.choice(_TYPES), rng.choice(_SHAPES)
    fortran = rng.choice(["False", "True", "0", "None", "'x'"])
    length = struct.unpack("<H", data[8:10])[0]
    text = f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    if rng.random() < 0.2:  # noqa: PLR2004
        text = rng.choice(["{}", "", "[]", "{'descr': '<f4'}", "__import__('os')", "{" * 200, "1" * 20000, text + " x"])
    version = rng.choice([b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"])
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text) + 1)
    return b"\x93NUMPY" + version + size + text.encode() + b"\n" + data[10 + length :]


def _write(data: bytes, path: Path) -> Path:
    path.write_bytes(data)
    return path
