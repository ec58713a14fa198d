"""Skip-gram with hierarchical softmax: the tree of words, and the passes over their sentences.

References
----------
Mikolov, Sutskever, Chen, Corrado and Dean, Distributed representations of words and phrases, NIPS 2013.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.api.vrdd import VRDD
from vispark.ml.xorshift import uniform_table
from vispark.plan.cuda_source import Kernels
from vispark.plan.symbols import IN, OUT

#: Margins beyond these have no gradient, and logistic numbers are of a table, as in word2vec's own program.
_FARTHEST, _ENTRIES = 6, 1000

#: A block of threads trains one model, word after word. On the CPU one thread goes along the vectors, on a GPU a warp.
_SOURCE = r"""
#include "vispark/target.h"

__device__ float sum_of_lanes(float v) {
    if (vispark::places() > 1)
        for (int other = 16; other; other /= 2) v += __shfl_xor_sync(0xffffffff, v, other);
    return v;
}

__device__ void meet() { if (vispark::places() > 1) __syncwarp(); }

__device__ int draw(unsigned long long* state, int bound) {
    while (true) {
        unsigned long long x = *state;
        x ^= x << 21; x ^= x >> 35; x ^= x << 4;
        *state = x;
        long long bits = (long long)(x & 0x7fffffffULL);
        if ((bound & -bound) == bound) return (int)((bound * bits) >> 31);
        long long found = bits % bound;
        if (bits - found + (bound - 1) < 0x80000000LL) return (int)found;
    }
}

extern "C" __global__ void train(
        const int* words, int count, const float* before, float* after, const int* ends, const int* nodes,
        const float* codes, const float* table, const unsigned long long* seeds, int vocabulary, int size,
        int window, double rate, double models, double done, double all) {
    if (VISPARK_ALONE && threadIdx.x) return;
    const int lane = vispark::own_place(), lanes = vispark::places(), width = size + 1;
    for (int i = lane; i < 2 * vocabulary * size; i += lanes)
        after[(long long)(i / size) * width + i % size] = before[i];
    for (int i = lane; i < 2 * vocabulary; i += lanes) after[(long long)i * width + size] = 0;
    meet();
    unsigned long long state = seeds[words[0]];
    double alpha = rate;
    int seen = 0, last = 0;
    extern __shared__ float change[];
    for (int at = 1; at < count; ++at) {
        const int* here = words + 3 * (long long)at;
        if (here[1] == at) {
            if (seen - last > 10000) {
                last = seen;
                alpha = fmax(rate * (1 - (models * seen + done) / all), rate * 0.0001);
            }
            seen += here[2] - at;
        }
        int word = here[0], off = draw(&state, window);
        for (int a = off; a < 2 * window + 1 - off; ++a) {
            int other = at - window + a;
            if (a == window || other < here[1] || other >= here[2]) continue;
            float* input = after + (long long)words[3 * (long long)other] * width;
            for (int i = lane; i < size; i += lanes) change[i] = 0;
            for (int node = word ? ends[word - 1] : 0; node < ends[word]; ++node) {
                float* output = after + (long long)(vocabulary + nodes[node]) * width;
                float f = 0;
                for (int i = lane; i < size; i += lanes) f += input[i] * output[i];
                f = sum_of_lanes(f);
                if (f <= -6 || f >= 6) continue;
                f = table[(int)((f + 6) * 83.0)];
                float g = (float)((1 - codes[node] - f) * alpha);
                for (int i = lane; i < size; i += lanes) {
                    float was = output[i];
                    change[i] += g * was;
                    output[i] = was + g * input[i];
                }
                if (lane == 0) output[size] = 1;
                meet();
            }
            for (int i = lane; i < size; i += lanes) input[i] += change[i];
            if (lane == 0) input[size] = 1;
            meet();
        }
    }
    for (int row = 0; row < 2 * vocabulary; ++row) {
        float* vector = after + (long long)row * width;
        if (vector[size] == 0) for (int i = lane; i < size; i += lanes) vector[i] = 0;
    }
}
"""
_KERNELS = Kernels(_SOURCE, file="skip_gram.cu")


@dataclass(frozen=True)
class WordTree:
    """Binary tree of words, with those that occur often near the root, as Huffman's.

    Parameters
    ----------
    ends : array of int32, shape (V,)
        Of each word, the number of nodes on the ways to it and to the words before it.
    nodes : array of int32
        Inner nodes on the ways from the root to each word.
    codes : array of float32
        The turn at each of these, 0 or 1.
    """

    ends: np.ndarray
    nodes: np.ndarray
    codes: np.ndarray


def word_tree(counts: Sequence[int]) -> WordTree:
    """Return the tree of words that occur so often, in descending order.

    Examples
    --------
    >>> word_tree([5, 3, 1]).codes.tolist(), word_tree([5, 3, 1]).ends.tolist()
    ([1.0, 0.0, 1.0, 0.0, 0.0], [1, 3, 5])
    """
    size = len(counts)
    count, parent, turn = [*counts, *[10**9] * size], [0] * (2 * size), [0] * (2 * size)
    leaf, inner = size - 1, size
    for joined in range(size, 2 * size - 1):
        least = []
        for _ in range(2):
            if leaf >= 0 and count[leaf] < count[inner]:
                least.append(leaf)
                leaf -= 1
            else:
                least.append(inner)
                inner += 1
        count[joined] = count[least[0]] + count[least[1]]
        parent[least[0]] = parent[least[1]] = joined
        turn[least[1]] = 1
    ends, nodes, codes = [], [], []
    for word in range(size):
        way, node = [], word
        while node != 2 * size - 2:
            way.append((parent[node] - size, turn[node]))
            node = parent[node]
        nodes += [each for each, _ in reversed(way)]
        codes += [each for _, each in reversed(way)]
        ends.append(len(nodes))
    return WordTree(*[np.array(each, kind) for each, kind in ((ends, "i4"), (nodes, "i4"), (codes, "f4"))])


@dataclass(frozen=True)
class SkipGram:
    """Fit of vectors of words.

    Parameters
    ----------
    counts : sequence of int
        How often each word occurs, in descending order.
    size, window : int
        Numbers in a vector, and the farthest neighbours that a word is trained with.
    rate : float
        First step length, which falls to a ten-thousandth of it.
    models : int
        Number of blocks, each of which trains a model of its own from the mean of those before.
    """

    counts: Sequence[int]
    size: int
    window: int
    rate: float
    models: int

    def vectors(self, blocks: VRDD, iterations: int, state: int, seeds: Callable[[int, int], int]) -> np.ndarray:
        """Return a row for each word.

        Parameters
        ----------
        blocks : VRDD
            Blocks of :class:`~vispark.ml.sentences.Sentences`.
        iterations : int
            Number of passes.
        state : int
            State of the random numbers that the vectors begin with.
        seeds : callable
            State of the random numbers of a pass and a block.
        """
        tree, words = word_tree(self.counts), len(self.counts)
        margins = (2.0 * np.arange(_ENTRIES) / _ENTRIES - 1.0) * _FARTHEST
        table = np.float32(np.exp(margins) / (np.exp(margins) + 1))
        first = (uniform_table(state, words, self.size) - np.float32(0.5)) / np.float32(self.size)
        model, total = np.concatenate([first, np.zeros_like(first)]), sum(self.counts)
        for done in range(iterations):
            states = np.array([seeds(done + 1, block) % 2**64 for block in range(self.models)], np.uint64)
            trained = blocks.exec(
                _KERNELS.train, IN, IN.shape[0], model, OUT, tree.ends, tree.nodes, tree.codes, table, states, words,
                self.size, self.window, self.rate, float(self.models), float(done * total),
                float(iterations * total + 1), out=((2 * words, self.size + 1), "f4"), grid=1, block=32,
                shared=4 * self.size)
            sums = trained.reduce(_add)
            times = sums[:, self.size:]
            model = np.where(times > 0, sums[:, :self.size] / np.maximum(times, 1), model)
        return model[:words]


def _add(a: Any, b: Any) -> Any:
    return a + b
