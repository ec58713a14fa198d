"""Sentences of a column of lists of words, as blocks of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark import RDD

from vispark.data.tables.arrow import pa
from vispark.ml.base import Unsuited


@dataclass(frozen=True)
class Sentences:
    """Task that makes a block of a partition's sentences: a row for each word, and one before them.

    A word's row is its number, and where its sentence begins and ends; the first row is the block's number.

    Parameters
    ----------
    words : tuple of str
        The vocabulary; other words are left out.
    longest : int
        The most words of a sentence; what is longer is cut.
    blocks : int
        Number of blocks of a partition; each gets every so many-th sentence.
    """

    words: tuple[str, ...]
    longest: int
    blocks: int

    def __call__(self, index: int, messages: Iterable[bytes]) -> Iterator[np.ndarray]:
        known = {word: number for number, word in enumerate(self.words)}
        blocks = [[np.array([[self.blocks * index + block, 0, 0]])] for block in range(self.blocks)]
        starts, count = [1] * self.blocks, 0
        for column in lists(messages):
            for sentence in column.to_pylist():
                numbers = [known[word] for word in sentence or () if word in known]
                for begin in range(0, len(numbers), self.longest):
                    part, block = numbers[begin:begin + self.longest], count % self.blocks
                    end = starts[block] + len(part)
                    blocks[block].append(np.column_stack([part, np.full((len(part), 2), [starts[block], end])]))
                    starts[block], count = end, count + 1
        for rows in blocks:
            yield np.concatenate(rows).astype(np.int32)


def count_words(messages: Iterable[bytes]) -> Iterator[tuple[str | None, int]]:
    """Yield the words of a partition's sentences, and how often each occurs."""
    counts: dict[Any, int] = {}
    for column in lists(messages):
        for counted in column.flatten().value_counts().to_pylist():
            counts[counted["values"]] = counts.get(counted["values"], 0) + counted["counts"]
    return iter(counts.items())


def vocabulary(sentences: RDD[bytes], least: int, size: int) -> dict[str, int]:
    """Return the words that occur often enough, and how often, those that occur most first, in one Spark job.

    Parameters
    ----------
    sentences : RDD
        Record batches of one column of lists of words.
    least : int
        How often a word has to occur.
    size : int
        Numbers in a vector.

    Raises
    ------
    Unsuited
        If there are no words, a word is null, or vectors of all words would have more than 2**31 numbers.
    """
    counts: dict[str | None, int] = {}
    for word, count in sentences.mapPartitions(count_words).collect():
        counts[word] = counts.get(word, 0) + count
    if None in counts:
        raise Unsuited("a word is null")
    words = sorted(((word, count) for word, count in counts.items() if word is not None and count >= least),
                   key=lambda each: (-each[1], each[0]))
    if not words:
        raise Unsuited(f"no word occurs {least} times")
    if len(words) * size >= 2**31 - 1:
        raise Unsuited(f"the vectors of {len(words)} words have more than 2**31 numbers")
    return dict(words)


def lists(messages: Iterable[bytes]) -> Iterator[Any]:
    """Yield the Arrow columns of lists of words in record batches."""
    schema = pa.schema([("words", pa.list_(pa.string()))])
    for message in messages:
        yield pa.ipc.read_record_batch(pa.py_buffer(message), schema).column(0)
