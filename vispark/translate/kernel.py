"""The kernel of one traced function: the shortest chain there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vispark.translate.codegen.scalar.interface import ElementSpec, TableKernel, TracedCall
from vispark.translate.frontend.reader import trace
from vispark.translate.fusion import fuse
from vispark.translate.ir.nodes import Function


def specialise(function: Function, record: ElementSpec, args: Sequence[Any] = ()) -> TableKernel:
    """Return the kernel of a traced function for elements and arguments of given dtypes and shapes.

    Parameters
    ----------
    function : Function
        What :func:`trace` gave.
    record : ElementSpec
        What one element is.
    args : sequence
        The arguments, numbers and arrays.

    Returns
    -------
    TableKernel
        As :func:`fuse` gives it.

    Raises
    ------
    TranslationError
        If the types do not go together; at the user's line.

    Examples
    --------
    >>> from vispark.translate import ElementField
    >>> specialise(trace(lambda x, k: k * x, (2.0,)), ElementSpec((ElementField("", "float32"),)), (2.0,)).outputs
    (KernelOutput(name='', dtype='float32', shape=(), number=''),)
    """
    return fuse((TracedCall(function, tuple(args)),), record)


def translate(fn: Callable[..., Any], *args: Any, record: ElementSpec) -> str:
    """Return the CUDA C++ that a Python function becomes.

    Examples
    --------
    >>> from vispark.translate import ElementField
    >>> print(translate(lambda x: 2 * x, record=ElementSpec((ElementField("", "float32"),))).partition("extern")[0])
    #include "vispark/rows.h"
    <BLANKLINE>
    static __device__ __forceinline__ void
    lambda(const float x, float& out_value)
    {
        out_value = 2.0f * x;
    }
    <BLANKLINE>
    <BLANKLINE>
    """
    return specialise(trace(fn, args), record, args).source
