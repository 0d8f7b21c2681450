"""Error rates of outputs that spell text.

A new unit of text is a function here and a line in `metrics`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Outputs
from compressor.score.truth import Truth

if TYPE_CHECKING:
    from jiwer import CharacterOutput, WordOutput

_LOGITS_RANK, _IDS_RANK = 3, 2


def symbols(path: Path) -> tuple[str, ...]:
    """Read an alphabet: UTF-8, one symbol a line, the first of which has index 1.

    Raises:
        InputError: It cannot be read, or a line is empty.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"data.alphabet: cannot read {path} as text in UTF-8 ({error})") from error
    found = tuple(line.removesuffix("\r") for line in lines)
    if "" in found:
        raise InputError(f"data.alphabet: {path}, line {found.index('') + 1} is empty; expected one symbol a line")
    return found


def characters(outputs: Outputs, truth: Truth) -> Array:
    """Give how many characters each sample gets wrong and how many its label has: [n, 2].

    Case and punctuation count; white space at the ends does not.
    """
    from jiwer import process_characters

    return _counts([process_characters(*pair) for pair in _pairs(outputs, truth, "cer")])


def words(outputs: Outputs, truth: Truth) -> Array:
    """Give how many words each sample gets wrong and how many its label has: [n, 2].

    Words end at white space; case and punctuation count.
    """
    from jiwer import process_words

    return _counts([process_words(*pair) for pair in _pairs(outputs, truth, "wer")])


def rate(rows: Array) -> float:
    """Give the error rate of a corpus: all edits over all lengths; infinite where there is no text at all."""
    edits, length = rows.sum(axis=0)
    return float(edits / length) if length else float("inf")


def _counts(found: list[CharacterOutput] | list[WordOutput]) -> Array:
    edits = [each.substitutions + each.deletions + each.insertions for each in found]
    length = [each.hits + each.substitutions + each.deletions for each in found]
    return np.stack([edits, length], axis=1)


def _pairs(outputs: Outputs, truth: Truth, metric: str) -> list[tuple[str, str]]:
    """Give the text of each label and the text that the outputs spell."""
    if not truth.symbols:
        raise InputError(f"data.metric: {metric} needs data.alphabet, a file with one symbol a line")
    return list(zip(_texts(truth.labels, metric), _spelled(outputs, truth.symbols, metric), strict=True))


def _texts(labels: Array | None, metric: str) -> list[str]:
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "US":
        raise InputError(f"data.metric: {metric} needs labels that are text, one a sample")
    if not any(text.strip() for text in labels.tolist()):
        raise InputError(f"data.metric: {metric} needs labels that are text, all are empty")
    return [text.decode() if isinstance(text, bytes) else str(text) for text in labels.tolist()]


def _spelled(outputs: Outputs, alphabet: tuple[str, ...], metric: str) -> list[str]:
    for value in outputs.values():
        if value.dtype.kind == "f" and value.ndim == _LOGITS_RANK and value.shape[2] == len(alphabet) + 1:
            return [_read(_collapsed(frames), alphabet) for frames in value]
    for name, value in outputs.items():
        if value.dtype.kind in "iu" and value.ndim == _IDS_RANK:
            if value.max(initial=0) > len(alphabet):
                raise InputError(f"output {name!r} holds index {value.max()}, data.alphabet ends at {len(alphabet)}")
            return [_read(ids, alphabet) for ids in value]
    raise InputError(
        f"data.metric: {metric} needs an output of CTC scores, [n, frames, {len(alphabet) + 1}] for the blank and "
        f"{len(alphabet)} symbols of data.alphabet, or of their indices, [n, length]"
    )


def _collapsed(frames: Array) -> Array:
    """Give the best index of each frame, repeats left out; a frame that is not finite is blank."""
    best = np.where((frames < np.inf).all(axis=1), frames.argmax(axis=1), 0)
    return np.asarray(best[np.diff(best, prepend=-1) != 0])


def _read(ids: Array, alphabet: tuple[str, ...]) -> str:
    return "".join(alphabet[index - 1] for index in ids.tolist() if index > 0)
