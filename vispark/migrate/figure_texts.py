"""Texts of figures, as answers and pages have them: seconds and speed-ups."""

from __future__ import annotations


def seconds_text(seconds: float | None) -> str:
    """Return seconds with three digits, in the unit that fits.

    Examples
    --------
    >>> [seconds_text(each) for each in (0.000123, 0.0456, 1.5, 125.0, None)]
    ['0.123 ms', '45.6 ms', '1.5 s', '125 s', 'not known']
    """
    if not seconds:
        return "not known" if seconds is None else "0 s"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def ratio_text(ratio: float) -> str:
    """Return a speed-up with two digits, or as a whole number.

    Examples
    --------
    >>> ratio_text(0.847), ratio_text(2.14), ratio_text(502.4)
    ('x0.85', 'x2.1', 'x502')
    """
    return f"x{ratio:.2g}" if ratio < 10 else f"x{ratio:.0f}"
