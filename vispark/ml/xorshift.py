"""Random numbers of MLlib: Spark's XORShiftRandom, from which some fits start."""

from __future__ import annotations

import numpy as np

from vispark.ml.java_random import JavaRandom

_ALL = 2**64 - 1
_FACTOR = 0x9e3775cd9e3775cd


def spread(value: int) -> int:
    """Return the 64 bits of an integer mixed, as ``scala.util.hashing.byteswap64`` does, as a signed integer.

    Examples
    --------
    >>> spread(0)
    0
    """
    swapped = int.from_bytes((value * _FACTOR & _ALL).to_bytes(8, "little"), "big")
    return _signed(swapped * _FACTOR & _ALL, 64)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


class XorShift(JavaRandom):
    """Generator of the numbers that Spark's gives from a seed: Java's, with bits of its own.

    Parameters
    ----------
    state : int
        The seed as Spark hashes it.

    References
    ----------
    Marsaglia, Xorshift RNGs, Journal of Statistical Software 8 (2003).
    """

    def __init__(self, state: int):
        super().__init__(0)
        self._state = state & _ALL

    def _bits(self, bits: int) -> int:
        x = self._state
        x ^= x << 21 & _ALL
        x ^= x >> 35
        x ^= x << 4 & _ALL
        self._state = x
        return x & ((1 << bits) - 1)

    def long(self) -> int:
        """Return a signed integer of 64 bits."""
        high = _signed(self._bits(32), 32) << 32
        return _signed((high + _signed(self._bits(32), 32)) & _ALL, 64)


def uniform_table(state: int, rows: int, columns: int) -> np.ndarray:
    """Return the next numbers from 0 to below 1, row by row, as float32 of 24 bits.

    The steps are linear over bits, so that all rows go at once, each from where the row before will end.

    Parameters
    ----------
    state : int
        The generator's state.
    rows, columns : int
        Extents of the table.

    Examples
    --------
    >>> generator = XorShift(42)
    >>> bool((uniform_table(42, 2, 2).ravel() == [generator._bits(24) / 2**24 for _ in range(4)]).all())
    True
    """
    step = _stepped(np.uint64(1) << np.arange(64, dtype=np.uint64))
    jump = np.uint64(1) << np.arange(64, dtype=np.uint64)
    for bit in bin(columns)[2:]:
        jump = _moved(jump, jump)
        jump = _moved(step, jump) if bit == "1" else jump
    states = np.array([state & _ALL], np.uint64)
    while len(states) < rows:
        states = np.append(states, _moved(jump, states))
        jump = _moved(jump, jump)
    states, uniform = states[:rows], np.empty((rows, columns), np.float32)
    for column in range(columns):
        states = _stepped(states)
        uniform[:, column] = (states & np.uint64(2**24 - 1)).astype(np.float32) / np.float32(2**24)
    return uniform


def _stepped(states: np.ndarray) -> np.ndarray:
    """Return the states after one step."""
    x = states ^ (states << np.uint64(21))
    x = x ^ (x >> np.uint64(35))
    return x ^ (x << np.uint64(4))


def _moved(images: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return the states after a linear step that is given by the images of the 64 bits."""
    moved = np.zeros_like(states)
    for bit in range(64):
        moved ^= np.where(states >> np.uint64(bit) & np.uint64(1), images[bit], np.uint64(0))
    return moved
