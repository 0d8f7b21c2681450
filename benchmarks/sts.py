"""STS-B as samples for a sentence encoder, and its metric, for `real_models.py`.

Source: the semantic textual similarity benchmark; similarity is the cosine of the two sentences' embeddings.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

LENGTH = 64
EMBEDDING = "461"
"""The sentence embedding among the outputs of paraphrase-MiniLM-L3."""


def write(pairs: Path, vocabulary: Path, out: Path) -> None:
    """Write an .npz of sentence pairs: ids and mask int64 [pairs, 2, 64], label float64 [pairs]."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    tokenizer.enable_padding(length=LENGTH)
    tokenizer.enable_truncation(LENGTH)
    with pairs.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row[2:] and row[2] != "score"]
    encoded = [[tokenizer.encode(sentence) for sentence in row[:2]] for row in rows]
    np.savez_compressed(
        out,
        input_ids=np.array([[one.ids for one in pair] for pair in encoded], np.int64),
        attention_mask=np.array([[one.attention_mask for one in pair] for pair in encoded], np.int64),
        label=np.array([float(row[2]) for row in rows]),
    )


def spearman(outputs: Mapping[str, npt.NDArray[np.float32]], labels: npt.NDArray[np.float64]) -> float:
    """Give the rank correlation of cosine similarities with the labels; 1 is perfect."""
    embedding = outputs[EMBEDDING].astype(np.float64)
    embedding /= np.linalg.norm(embedding, axis=-1, keepdims=True)
    similarity = (embedding[:, 0] * embedding[:, 1]).sum(axis=-1)
    return float(np.corrcoef(_ranks(similarity), _ranks(labels))[0, 1])


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Give ranks, equal values sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]
