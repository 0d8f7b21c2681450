from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.records import Array
from compressor.score import metric
from compressor.score.text import symbols
from compressor.score.truth import Truth

ALPHABET = ("a", "b", " ", "é")


def rows(name: str, output: Array, labels: Any) -> list[list[int]]:
    return np.asarray(metric(name).of({"y": output}, Truth(np.array(labels), symbols=ALPHABET))).tolist()


def logits(best: list[list[int]]) -> Array:
    """Score the frames so that these symbols are the best."""
    return np.eye(len(ALPHABET) + 1, dtype=np.float32)[np.array(best)]


def test_scores_of_frames_lose_repeats_then_blanks() -> None:
    frames = [[1, 1, 0, 1, 2, 2], [0, 0, 0, 0, 0, 0], [4, 0, 3, 0, 2, 2]]  # aab, nothing, "é b"
    assert rows("cer", logits(frames), ["aab", "ab", "é b"]) == [[0, 3], [2, 2], [0, 3]]


def test_indices_keep_repeats_and_lose_padding() -> None:
    ids = np.array([[1, 1, 2, 0], [2, 2, -1, -100]])
    assert rows("cer", ids, ["aab", "b"]) == [[0, 3], [1, 1]]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_frame_that_is_not_finite_is_blank(bad: float) -> None:
    scores = logits([[1, 2]])
    scores[0, 1, 2] = bad
    assert rows("cer", scores, ["ab"]) == [[1, 2]]


def test_substitutions_deletions_and_insertions_count() -> None:
    ids = np.array([[1, 1, 1], [1, 0, 0], [1, 2, 1]])  # aaa, a, aba
    assert rows("cer", ids, ["aba", "aba", "a"]) == [[1, 3], [2, 3], [2, 1]]


def test_words_end_at_white_space() -> None:
    ids = np.array([[1, 3, 2, 2], [1, 2, 0, 0], [3, 1, 3, 3]])  # "a bb", "ab", " a  "
    assert rows("wer", ids, ["a b", "a b", "a"]) == [[1, 2], [2, 2], [0, 1]]


def test_the_rate_is_of_all_samples_together() -> None:
    found = np.array([[1, 2], [3, 8], [0, 0]])
    assert metric("cer").over(found) == 0.4
    assert metric("wer").over(np.array([[1, 0]])) == np.inf


def test_text_may_be_bytes() -> None:
    assert rows("cer", np.array([[4, 1]]), ["éa".encode()]) == [[0, 2]]


@pytest.mark.parametrize("text", ["a\nb\n \né\n", "a\r\nb\r\n \r\né", "\ufeffa\nb\n \né"])
def test_an_alphabet_is_a_symbol_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "alphabet.txt").write_bytes(text.encode())
    assert symbols(tmp_path / "alphabet.txt") == ALPHABET


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a\n\nb\n", "line 2 is empty"), (b"", "line 1 is empty"), (b"\xff", "UTF-8"), (None, "No such file")],
)
def test_an_alphabet_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "alphabet.txt").write_bytes(content)
    with pytest.raises(InputError, match=rf"data\.alphabet: .*alphabet\.txt.*{message}"):
        symbols(tmp_path / "alphabet.txt")


@pytest.mark.parametrize(
    ("output", "labels", "alphabet", "message"),
    [
        (np.zeros((2, 3), int), np.array(["a", "b"]), (), r"needs data\.alphabet"),
        (np.zeros((2, 3), int), np.array([1, 2]), ALPHABET, "needs labels that are text"),
        (np.zeros((2, 3), int), np.array(["", " "]), ALPHABET, "all are empty"),
        (np.zeros((2, 3), int), None, ALPHABET, "needs labels that are text"),
        (np.full((2, 3), 5), np.array(["a", "b"]), ALPHABET, r"'y' holds index 5, data\.alphabet ends at 4"),
        (np.zeros((2, 3, 4)), np.array(["a", "b"]), ALPHABET, r"\[n, frames, 5\] for the blank and 4 symbols"),
    ],
)
@pytest.mark.parametrize("name", ["cer", "wer"])
def test_an_error_rate_says_what_it_lacks(
    name: str, output: Array, labels: Any, alphabet: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        metric(name).of({"y": output}, Truth(labels, symbols=alphabet))
