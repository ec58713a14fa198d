"""Random numbers of MLlib: Spark's XORShiftRandom, from which some fits start."""

from __future__ import annotations

import math

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


class XorShift:
    """Generator of the numbers that Spark's gives from a seed.

    Parameters
    ----------
    state : int
        The seed as Spark hashes it.

    References
    ----------
    Marsaglia, Xorshift RNGs, Journal of Statistical Software 8 (2003).
    """

    def __init__(self, state: int):
        self._state = state & _ALL
        self._next: float | None = None

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

    def uniform(self) -> float:
        """Return a number of at least 0 and below 1."""
        return ((self._bits(26) << 27) + self._bits(27)) * 2.0**-53

    def normal(self) -> float:
        """Return a standard normal number, by Marsaglia's polar method."""
        if self._next is not None:
            found, self._next = self._next, None
            return found
        while True:
            u, v = 2 * self.uniform() - 1, 2 * self.uniform() - 1
            s = u * u + v * v
            if 0 < s < 1:
                factor = math.sqrt(-2 * math.log(s) / s)
                self._next = v * factor
                return u * factor
