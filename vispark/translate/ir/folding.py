"""Accumulators of folded results in a kernel: operator, folded part and type.

The types are those that fold.cu folds in: integers their own, float32 in double, and sums of float64 with what rounding
takes from them. The C++ side is ``vispark/fold.h`` and ``vispark/rows.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_worker.protocol.fold_operators import of_bools, operator_of
from gpu_worker.protocol.messages import FieldFold
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import Scalar

#: The C++ type of an accumulator to its bytes.
ACCUMULATOR_BYTES = {"Twofold": 16, "double": 8, "float": 4, "unsigned char": 1, "signed char": 1, "short": 2,
                     "unsigned short": 2, "int": 4, "unsigned int": 4, "long long": 8, "unsigned long long": 8}

_TYPES = {"f4": "float", "f8": "double", "b1": "unsigned char", "i1": "signed char", "i2": "short", "i4": "int",
          "i8": "long long", "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned int",
          "u8": "unsigned long long"}


@dataclass(frozen=True)
class Folding:
    """Fold of a chain's elements into one record, or into one for each key below ``groups`` in the field ``key``.

    ``fields`` says with which operator each field is folded, as the protocol's folds do.
    """

    fields: tuple[FieldFold, ...]
    key: str = ""
    groups: int = 0


@dataclass(frozen=True)
class Accumulated:
    """One accumulator for each number of a field.

    Attributes
    ----------
    field : str
        The field that is folded.
    operator : str
        What joins two accumulators: the name of a :class:`~gpu_worker.protocol.fold_operators.FoldOperator`.
    accumulator : str
        Their C++ type.
    width : int
        How many of them one work leaves: a field's numbers, times the groups where there are keys.
    guard : str
        "" for the fold itself; "overflow" or "nan" for what tells whether it can be trusted; of the keys, "" for the
        number of records of each, and "least" and "greatest".
    of : str
        What of a number is folded.
    element : str
        The number's C++ type.
    """

    field: str
    operator: str
    accumulator: str
    width: int
    guard: str = ""
    of: str = "Value"
    element: str = ""

    @property
    def functor(self) -> str:
        """The operator's C++ type."""
        return operator_of(self.operator).functor

    @property
    def fold(self) -> str:
        """The C++ type of a thread's accumulator."""
        return f"rows::Fold<{self.functor}, {self.of}, {self.element}, {self.accumulator}>"

    @property
    def words(self) -> int:
        """Words of 8 bytes of a cell that threads fold into in any order; 0 if there is none (``vispark/cells.h``)."""
        if self.digits:
            return self.digits + 1
        whole = self.accumulator not in ("Twofold", "double", "float")
        if self.functor == "Add":
            return 2 if self.of == "Size" else int(whole or self.of in ("One", "IsNan"))
        return int(whole and self.of == "Value" and self.functor != "Multiply")

    @property
    def digits(self) -> int:
        """Those of them that are digits of an exact sum of floats; 0 if it is something else."""
        exact = {("float", "double"): 11, ("double", "Twofold"): 75}
        return exact.get((self.element, self.accumulator), 0) if (self.functor, self.of) == ("Add", "Value") else 0

    @property
    def fewest_digits(self) -> int:
        """The digits that one number goes into."""
        return 2 if self.element == "float" else 3

    @property
    def cell(self) -> str:
        """The C++ type of such a cell."""
        return f"rows::Cell<{self.functor}, {self.of}, {self.element}, {self.accumulator}>"

    @property
    def itemsize(self) -> int:
        """Bytes of an accumulator."""
        return ACCUMULATOR_BYTES[self.accumulator]

    @property
    def registers(self) -> int:
        """Registers that a thread's accumulator takes."""
        if self.element == "float":
            return 3 if self.functor == "Add" and self.of == "Value" else 1 if self.functor[0] == "M" else 2
        return -(-self.itemsize // 4)


def accumulated(name: str, kind: Scalar, width: int, folds: Sequence[FieldFold]) -> tuple[Accumulated, ...]:
    """Return the accumulators of a field of ``width`` numbers.

    Raises
    ------
    Refusal
        If there is no fold of such numbers in a kernel.
    """
    named = {each.field: each for each in folds}
    how = named.get(name) or named.get("")
    if how is None:
        raise Refusal(f"the fold does not say how to fold the field {name!r}")
    operator = how.operator
    if kind.kind == "b" and not how.result:
        operator = of_bools(operator)
    code = f"{kind.kind}{kind.numpy.itemsize}"
    if code not in _TYPES or kind.kind not in operator_of(operator).kinds:
        raise Refusal(f"there is no fold {operator} of {kind} in a kernel")
    carried = _TYPES[np.dtype(how.result).str[1:]] if how.result else "double" if code == "f4" else _TYPES[code]
    if carried == "double" and operator == "add" and code != "f4":
        carried = "Twofold"
    fields = [Accumulated(name, operator, carried, width, element=kind.c)]
    if how.guard == "overflow":
        product = operator == "multiply"
        fields.append(Accumulated(name, "multiply" if product else "add", "double", width, "overflow",
                                  "SizeOrOne" if product else "Size", kind.c))
    elif how.guard == "nan":
        fields.append(Accumulated(name, "add", "double", width, "nan", "IsNan", kind.c))
    return tuple(fields)


def of_keys(name: str, groups: int) -> tuple[Accumulated, ...]:
    """Return the accumulators of keys: the number of records of each key, and the range of keys."""
    return (Accumulated(name, "add", "long long", groups, "", "One", "long long"),
            Accumulated(name, "minimum", "long long", 1, "least", "Value", "long long"),
            Accumulated(name, "maximum", "long long", 1, "greatest", "Value", "long long"))
