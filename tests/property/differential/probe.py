"""Template of a piece of a function, and what "equal" means for its value."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Equal:
    """Rule of what counts as equal: by default everything does but the bits of a NaN.

    Attributes
    ----------
    units : float
        How far a float may be off, in units of its rounding (of a complex number: of its size).
    absolute : float
        The same in units of the rounding of this number, for what cancels.
    parts : float
        ``units`` where an operand is complex, as NumPy's loops compute those in several ways.
    zero : bool
        Whether a zero may have either sign: NumPy's own differs between its loops.
    promoted : bool
        Whether Python's value has a type that depends on the way taken, which a kernel's has not.
    """

    units: float = 0
    absolute: float = 0
    parts: float = 0
    zero: bool = False
    promoted: bool = False


EXACT = Equal()


@dataclass(frozen=True)
class Probe:
    """A template and what its value is compared by; ``rows`` says that its function has rows."""

    text: str
    equal: Equal = EXACT
    rows: bool = False

    @property
    def holes(self) -> frozenset[str]:
        """The names in braces."""
        return frozenset(re.findall(r"\{(\w+)\}", self.text))

    @property
    def mixes(self) -> bool:
        """Whether its second operand may have another dtype."""
        return "b" in self.holes or "y" in self.holes
