"""Interface between kernels and their users: elements, outputs, parameters and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.translate.frontend.capture import constant
from vispark.translate.ir.folding import Accumulated
from vispark.translate.ir.nodes import Function

#: Of a field of rows of several lengths: the array that says where the items of each lie, and that of the places of a
#: sparse vector's items, by what stands behind the field's name.
STARTS, PLACES = "#", "@"

#: The shared memory that a thread block can have on Hopper and on the host, in bytes.
SHARED_LIMIT = 227 * 1024


@dataclass(frozen=True)
class ElementField:
    """Field of an element, as the kernel sees it.

    Parameters
    ----------
    name : str
        Its name in a dict of arrays; empty for an element without named fields.
    dtype : str
        NumPy's name or string for the dtype.
    shape : tuple of int
        () for a number, (k,) for a row, (rows, columns) and so on.
    ragged : str
        ``"ragged"`` where it is a row whose length only data says, ``"sparse"`` where it is a sparse vector; its shape
        is () then.
    weak: bool
        Whether it is a Python number.
    items : tuple of (str, bool)
        Where it is a tuple, and no row: what its items are, by dtype, and whether each is a Python number.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    ragged: str = ""
    weak: bool = False
    items: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True)
class ElementSpec:
    """Specification of one element: its fields, and their relation to records.

    Parameters
    ----------
    fields : tuple of ElementField
        One without a name, or a dict's fields in their order.
    kind : str
        ``"elements"``: the records themselves; ``"blocks"``: what lies along a block's leading axis, so a field's shape
        is the block's without its first extent.
    """

    fields: tuple[ElementField, ...]
    kind: str = "elements"


@dataclass(frozen=True)
class TracedCall:
    """One ``vmap`` of a chain: a traced function, and its arguments beside the element."""

    function: Function
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class KernelOutput:
    """An array that a kernel writes; ``name`` is empty, a field's, or the place in a tuple such as ``"1.0"``.

    ``number`` is ``"bool"``, ``"int"``, ``"float"`` or ``"complex"`` where the function gives Python's, else empty.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    number: str = ""


@dataclass(frozen=True)
class ResultStructure:
    """Structure of a function's result, built of its outputs.

    ``kind`` is ``"value"`` (the output numbered ``output``), ``"tuple"`` or ``"dict"`` (of ``items``, with ``names``).
    """

    kind: str
    output: int = 0
    items: tuple[ResultStructure, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a kernel.

    Attributes
    ----------
    kind : str
        ``"input"`` and ``"output"``: an array among the kernel's ports, ``name`` is the field's or the output's;
        ``"argument"`` and ``"capture"``: the one numbered ``number`` among those of the chain's calls, one behind the
        other.
    dtype : str
        NumPy's name.
    shape : tuple of int
        Of an element of an input or output, or of an array argument.
    pointer : bool
        Whether it is passed by address.
    """

    kind: str
    name: str = ""
    number: int = 0
    dtype: str = "int64"
    shape: tuple[int, ...] = ()
    pointer: bool = False


@dataclass(frozen=True)
class PreparingKernel:
    """Kernel of the same source that runs once before another, and the buffer that it leaves for the other; see the
    protocol's.

    Attributes
    ----------
    name : str
        The ``extern "C"`` function.
    nbytes : int
        Bytes of what it makes.
    grid, block : int
        Thread blocks, and threads of each.
    """

    name: str
    nbytes: int
    grid: int
    block: int


@dataclass(frozen=True)
class TableKernel:
    """A kernel's source, and how it is launched over a table of works.

    Attributes
    ----------
    source : str
        CUDA C++, for NVRTC and for the host device. It includes ``vispark/rows.h``.
    name : str
        The ``extern "C"`` function in it.
    outputs : tuple of KernelOutput
        The arrays that it writes, each with the number of elements as its first extent; or, where it folds, the fields
        of the folded record.
    structure : ResultStructure
        How the last function's result is built of its outputs.
    merge : bool
        Whether the chain's input keeps its other fields beside the outputs.
    parameters : tuple of KernelParameter
        Its ports in order, and then its other parameters. Fields, arguments and captures that nothing reads are left
        out.
    accumulated : tuple of Accumulated
        What each work leaves of a fold, in the order of the partials.
    block, shared, tile, waves, cluster
        As the protocol's ``Launch`` has them.
    preparation : PreparingKernel or None
        What is made of the other parameters first.
    workspace : int
        Bytes of memory that each thread has for arrays of a row's own; then the kernel's last parameter is of all.
    """

    source: str
    name: str
    outputs: tuple[KernelOutput, ...]
    structure: ResultStructure
    merge: bool
    parameters: tuple[KernelParameter, ...]
    accumulated: tuple[Accumulated, ...]
    block: int
    shared: int
    tile: int
    waves: float
    preparation: PreparingKernel | None = None
    cluster: int = 1
    workspace: int = 0

    def values(self, calls: Sequence[TracedCall]) -> tuple[np.ndarray | np.generic, ...]:
        """Return the values of the parameters of kind "argument" and "capture", in the parameters' order."""
        arguments = [arg for call in calls for arg in call.args]
        captures = [capture for call in calls for capture in call.function.captures]
        values = []
        for parameter in self.parameters:
            if parameter.kind in ("argument", "capture"):
                number = parameter.number
                value = captures[number].value if parameter.kind == "capture" else \
                    constant(arguments[number], f"argument {number + 1}")
                values.append(value.array if parameter.pointer else value.array[()])
        return tuple(values)
