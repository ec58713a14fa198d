"""Report of an out-of-range index by a kernel, in memory that outlives the kernel.

A module whose kernels check indices has a variable of the name :data:`POINTER`. Where it points to, the first thread
that is outside leaves four integers of 64 bits: 1, the index, the axis's length, and the number of the subscript, from
which the driver knows the user's line. Of the subscript 0 they are two lengths that are to be equal, or, where both
are 0, that of a row that is to have items.
"""

from __future__ import annotations

import struct
from typing import Any

#: The variable of a module that points to a report.
POINTER = "vispark_report"

REPORT = struct.Struct("=qqqq")


def reported(data: Any) -> str:
    """Return the text of a report, to append to an error's message; empty if nothing was reported.

    Examples
    --------
    >>> reported(REPORT.pack(1, 7, 5, 0xabc01))
    '; index 7 is out of range for an axis of length 5, at the subscript abc01'
    >>> reported(REPORT.pack(0, 0, 0, 0))
    ''
    >>> reported(REPORT.pack(1, 3, 9, 0))
    '; rows of 9 and of 3 items do not go together'
    """
    is_written, index, length, subscript = REPORT.unpack_from(data)
    if not is_written:
        return ""
    if not subscript:
        return f"; rows of {length} and of {index} items do not go together" if index or length else \
            "; a row without items has no extreme"
    return f"; index {index} is out of range for an axis of length {length}, at the subscript {subscript:x}"
