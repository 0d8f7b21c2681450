"""Arrays in the .npy format: their headers, checked against the size of what holds them, and single ones read whole.

A version of the format is a line in `_READERS`.
"""

from __future__ import annotations

import math
from tokenize import TokenError
from typing import IO

import numpy as np

from compressor.errors import InputError
from compressor.records import Array
from compressor.samples.archive import check_size
from compressor.samples.fit import Column

SUFFIX = ".npy"
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def column(stream: IO[bytes], size_bytes: int, name: str, where: str) -> Column:
    """Give what the header of a stream says, which then stands at the first value.

    Raises:
        InputError: It is no such header, or an array that is pickled, structured, in Fortran order or of another size.
    """
    shape, fortran, dtype = _header(stream, where)
    if dtype.hasobject or dtype.names or dtype.subdtype:
        raise InputError(f"{where} holds Python objects or records; save plain numbers or text")
    if fortran and len(shape) > 1:
        raise InputError(f"{where} is in Fortran order; save numpy.ascontiguousarray of it")
    expected_bytes = stream.tell() + math.prod(shape) * dtype.itemsize
    if size_bytes != expected_bytes:
        raise InputError(f"{where} has {size_bytes} bytes, expected {expected_bytes}; write it again")
    return Column(name, dtype.str, shape)


def array(stream: IO[bytes], size_bytes: int, where: str) -> Array:
    """Give all of one array, which is one sample.

    Raises:
        InputError: As `column`, or it is too large, or cut short.
    """
    found = column(stream, size_bytes, "", where)
    check_size(size_bytes, where)
    blob = stream.read()
    if len(blob) != math.prod(found.shape) * np.dtype(found.dtype).itemsize:
        raise InputError(f"{where} ends before its header says; write it again")
    return np.frombuffer(blob, found.dtype).reshape(found.shape)


def _header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    try:
        version = np.lib.format.read_magic(stream)
        shape, fortran, dtype = _READERS[version](stream)
    # what the header's text and the type in it can make numpy and Python's parser raise
    except (ValueError, KeyError, TypeError, SyntaxError, TokenError, MemoryError, RecursionError) as error:
        raise InputError(f"{where} is not in .npy format 1 or 2; save it with numpy.save or numpy.savez") from error
    if any(size < 0 for size in shape):
        raise InputError(f"{where} has a negative size in its header; write it again")
    return shape, fortran, dtype
