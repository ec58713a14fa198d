"""Random numbers of ``java.util.Random``, from which some of MLlib's fits start."""

from __future__ import annotations

import math

_MASK = (1 << 48) - 1


class JavaRandom:
    """Generator of the numbers that ``java.util.Random`` gives from a seed.

    Parameters
    ----------
    seed : int
        Of 64 bits.

    References
    ----------
    Knuth, The Art of Computer Programming, volume 2, section 3.2.1, whose linear congruential generator it is.

    Examples
    --------
    >>> JavaRandom(42).uniform(), JavaRandom(42).integer(100)
    (0.7275636800328681, 30)
    """

    def __init__(self, seed: int):
        self._state = (seed ^ 0x5DEECE66D) & _MASK
        self._next: float | None = None

    def _bits(self, bits: int) -> int:
        self._state = (self._state * 0x5DEECE66D + 0xB) & _MASK
        return self._state >> (48 - bits)

    def uniform(self) -> float:
        """Return a number of at least 0 and below 1."""
        high = self._bits(26) << 27
        return (high + self._bits(27)) * 2.0 ** -53

    def integer(self, bound: int) -> int:
        """Return an integer of at least 0 and below ``bound``."""
        if bound & -bound == bound:
            return bound * self._bits(31) >> 31
        while True:
            bits = self._bits(31)
            if bits - bits % bound + bound - 1 < 1 << 31:
                return bits % bound

    def signed(self) -> int:
        """Return an integer of 32 bits, of either sign."""
        bits = self._bits(32)
        return bits - ((bits & 1 << 31) << 1)

    def normal(self) -> float:
        """Return a standard normal number, by Marsaglia's polar method."""
        if self._next is not None:
            number, self._next = self._next, None
            return number
        while True:
            u, v = 2 * self.uniform() - 1, 2 * self.uniform() - 1
            s = u * u + v * v
            if 0 < s < 1:
                factor = math.sqrt(-2 * math.log(s) / s)
                self._next = v * factor
                return u * factor
