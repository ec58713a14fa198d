"""Random numbers of MLlib: Spark's XORShiftRandom, from which some fits start."""

from __future__ import annotations

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
