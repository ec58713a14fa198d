"""Arrays that workers hold already: constants by reference, whose elements the driver does not have."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np


class Reference:
    """Interface of an array's content in workers, in place of its bytes; equal to itself alone, and ``bytes`` once it
    is pickled.
    """

    def __len__(self) -> int:
        """Return 0: no bytes of it travel with an argument."""
        return 0

    def __bool__(self) -> bool:
        return True

    @abstractmethod
    def __bytes__(self) -> bytes: ...

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (bytes(self),)


class Described(np.ndarray):
    """Array of a dtype and a shape whose elements are not there, and are zeros to whom they do not concern."""

    @classmethod
    def of(cls, dtype: str, shape: tuple[int, ...]) -> Described:
        """Return an array that takes the memory of one element."""
        return np.broadcast_to(np.zeros((), dtype), shape).view(cls)
