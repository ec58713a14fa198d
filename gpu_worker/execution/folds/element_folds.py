"""Folds of elements by the operators of ``fold.cu``: functors, and the types of elements and accumulators.

Integers are folded in their own type; float32 is carried in float64, and sums of float64 with what rounding takes from
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Source
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.fold_operators import of_bools, operator_of
from gpu_worker.protocol.messages import Field, FieldFold

SOURCE = Source((Path(__file__).parent / "fold.cu").read_text(), file="fold.cu")

#: NumPy dtype (kind and size) to the C++ type of an element.
_ELEMENTS = {
    "f4": "float", "f8": "double", "b1": "unsigned char", "i1": "signed char", "i2": "short", "i4": "int",
    "i8": "long long", "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned int", "u8": "unsigned long long",
}
#: The C++ type of an accumulator to what it is on the host: a dtype, and how many of them.
ACCUMULATORS = {element: (dtype, 1) for dtype, element in _ELEMENTS.items() if dtype != "b1"} | {"Twofold": ("f8", 2)}


def field_fold(folds: Sequence[FieldFold], described: Field) -> FieldFold:
    """Return the fold of a field: the one of its name, or else the one without a name, with its operator checked."""
    named = {each.field: each for each in folds}
    how = named.get(described.name) or named.get("")
    if how is None:
        raise PlanError(f"the plan does not say how to fold field {described.name!r}")
    operator = operator_of(how.operator)
    if np.dtype(described.dtype).kind == "b" and not how.result:
        how = replace(how, operator=of_bools(operator.name))
    return replace(how, field=described.name)


@dataclass(frozen=True)
class ElementFold:
    """Fold in C++: the functor, the part of an element that is folded, and the types of elements and accumulators."""

    functor: str
    of: str
    element: str
    carried: str
    parts: int = 1

    @property
    def onward(self) -> ElementFold:
        """The fold of this operation's own results."""
        return replace(self, of="Value", element=self.carried)


def element_fold(how: FieldFold, described: Field) -> ElementFold:
    dtype = np.dtype(described.dtype)
    if how.result and how.result not in _ELEMENTS:
        raise PlanError(f"there is no fold {how.operator!r} with results of {how.result!r}")
    operator = operator_of(how.operator)
    functor = operator.functor
    code = _code(dtype)
    if code not in _ELEMENTS or dtype.kind not in operator.kinds:
        raise PlanError(f"no fold {how.operator} for {dtype} on the device")
    element = _ELEMENTS[code]
    carried = _ELEMENTS[how.result] if how.result else {"float": "double"}.get(element, element)
    if carried == "double" and functor == "Add" and (element != "float"):
        carried = "Twofold"
    return ElementFold(functor, "Value", element, carried, 2 if dtype.kind == "c" else 1)


def element_of(dtype: str) -> str:
    """Return the C++ type of the elements of a dtype; of complex numbers that of their parts."""
    return _ELEMENTS[_code(np.dtype(dtype))]


def _code(dtype: np.dtype) -> str:
    return f"f{dtype.itemsize // 2}" if dtype.kind == "c" else f"{dtype.kind}{dtype.itemsize}"


def guard_fold(how: FieldFold, operation: ElementFold) -> ElementFold | None:
    """Return the fold that says whether another one is exact: of the sizes, or of how many are NaN; None if it is."""
    if how.guard == "overflow":
        product = operation.functor == "Multiply"
        return replace(operation, functor="Multiply" if product else "Add", of="SizeOrOne" if product else "Size",
                       carried="double")
    return replace(operation, functor="Add", of="IsNan", carried="double") if how.guard == "nan" else None


def accumulator_size(accumulator: str) -> int:
    """Return the bytes of an accumulator, by its C++ type."""
    dtype, width = ACCUMULATORS[accumulator]
    return np.dtype(dtype).itemsize * width
