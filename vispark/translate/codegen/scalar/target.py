"""Choice between the two schedules of a kernel, which the target's header makes when the kernel is compiled.

A source is written before it is known which device runs it. What a device has, and how, stands under one set of names
in its ``vispark/target.h``; kernels that differ as a whole have both bodies, and this module alone writes the choice.
"""

from __future__ import annotations

from collections.abc import Sequence


def by_schedule(alone: Sequence[str] = (), together: Sequence[str] = ()) -> list[str]:
    """Return lines of which a compiler takes some.

    Parameters
    ----------
    alone : sequence of str
        Lines for a device on which one thread does a thread block's work, as on a CPU.
    together : sequence of str
        Lines for a device whose blocks' threads share it, as on a GPU.

    Examples
    --------
    >>> by_schedule(["if (threadIdx.x != 0) return;"])
    ['#if VISPARK_ALONE', 'if (threadIdx.x != 0) return;', '#endif']
    >>> by_schedule(together=["__syncthreads();"])
    ['#if !VISPARK_ALONE', '__syncthreads();', '#endif']
    """
    if not alone:
        return ["#if !VISPARK_ALONE", *together, "#endif"]
    return ["#if VISPARK_ALONE", *alone, *(["#else", *together] if together else []), "#endif"]
