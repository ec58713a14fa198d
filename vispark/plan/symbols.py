"""Symbols for blocks that do not exist yet: ``IN`` and ``OUT``, their extents, and block descriptions.

``IN`` and ``OUT`` among a kernel's arguments are the addresses of the input and of the output block, ``IN["field"]``
and ``OUT["field"]`` those of a field; ``IN.shape[i]`` and ``IN.size`` are extents, with which one may calculate. Of
rows of several lengths ``IN`` is the items of all, ``IN.rows`` where each row's lie, and ``IN.places`` the places of
sparse vectors' items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import LaunchError, PlanError
from gpu_worker.protocol.messages import Field, Signature
from vispark.data.records.layout import PLACES, STARTS


@dataclass(frozen=True, repr=False)
class BlockView:
    """Description of a block, for functions given as ``out=``, ``grid=``, ``block=``, ``shared=`` or an argument.

    A block with named fields is asked for one of them first: ``b["x"].shape``.

    Examples
    --------
    >>> b = BlockView(Signature((Field("", "<f4", (100, 41)),)))
    >>> b.shape, b.dtype, b.ndim, b.size, b.nbytes
    ((100, 41), dtype('float32'), 2, 4100, 16400)
    """

    signature: Signature

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its fields; none for a block that is one array."""
        return tuple(field.name for field in self.signature.fields if field.name and not self.beside(field.name))

    @property
    def _only(self) -> Field:
        if self.fields or not self.signature.fields:
            raise PlanError(f"the block has the fields {_listed(self.fields)}: ask for one, as in"
                            f" b[{next(iter(self.fields), 'x')!r}].shape")
        return next(field for field in self.signature.fields if not field.name)

    def beside(self, name: str) -> bool:
        """Return whether a field says where the items of another one, of rows of several lengths, lie."""
        return name[-1:] in (STARTS, PLACES) and any(field.name == name[:-1] for field in self.signature.fields)

    @property
    def rows(self) -> BlockView:
        """Where the items of each row lie: int64 of shape (records, 2), the first item's number and how many there are;
        (records, 3) of sparse vectors, whose size is the last one.
        """
        described = next((field for field in self.signature.fields if field.name == STARTS), None)
        if described is None and self.ndim != 2:
            raise LaunchError(f"there are no rows in the block, which is {self}")
        shape = described.shape if described is not None else (self.shape[0], 2)
        return BlockView(Signature((Field("", "<i8", shape),)))

    @property
    def places(self) -> BlockView:
        """The places of the items of sparse vectors (int32)."""
        described = next((field for field in self.signature.fields if field.name == PLACES), None)
        if described is None:
            raise LaunchError(f"there are no sparse vectors in the block, which is {self}")
        return BlockView(Signature((replace(described, name=""),)))

    def __getitem__(self, name: str) -> BlockView:
        if name in self.fields:
            return BlockView(Signature(tuple([
                replace(field, name=field.name[len(name):]) for field in self.signature.fields
                if field.name in (name, name + STARTS, name + PLACES)])))
        has = f"it has {_listed(self.fields)}" if self.fields else "it is one array without a name"
        raise PlanError(f"the block has no field {name!r}; {has}")

    # Fields are looked up by name: there is nothing to iterate over.
    __iter__ = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of all axes."""
        return self._only.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of an element."""
        return np.dtype(self._only.dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return ", ".join(f"{field.name}: {shown}" if field.name else shown for field in self.signature.fields
                         for shown in [f"{np.dtype(field.dtype).name} {field.shape}"] if not self.beside(field.name))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


# -- extents ----------------------------------------------------------------------------------------------------------

class ExtentExpression:
    """Integer that depends on the input block; ``+``, ``-``, ``*``, ``//`` and ``%`` give expressions of it."""

    # NumPy's integers leave the operators to this class.
    __array_ufunc__ = None

    def evaluate(self, block: BlockView) -> int:
        """Return its value for one block.

        Raises
        ------
        LaunchError
            If the block has no such field or axis, or a division is by zero.
        """
        raise NotImplementedError

    def __add__(self, other: object) -> Any:
        return _operation("+", self, other)

    def __radd__(self, other: object) -> Any:
        return _operation("+", other, self)

    def __sub__(self, other: object) -> Any:
        return _operation("-", self, other)

    def __rsub__(self, other: object) -> Any:
        return _operation("-", other, self)

    def __mul__(self, other: object) -> Any:
        return _operation("*", self, other)

    def __rmul__(self, other: object) -> Any:
        return _operation("*", other, self)

    def __floordiv__(self, other: object) -> Any:
        return _operation("//", self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return _operation("//", other, self)

    def __mod__(self, other: object) -> Any:
        return _operation("%", self, other)

    def __rmod__(self, other: object) -> Any:
        return _operation("%", other, self)

    def __neg__(self) -> Any:
        return _operation("-", 0, self)

    def __bool__(self) -> bool:
        raise PlanError(f"{self} is known when there is a block, not here; write a function of the block")


@dataclass(frozen=True, repr=False)
class Extent(ExtentExpression):
    """``IN.shape[axis]``, or ``IN.size`` where the axis is None."""

    field: str
    axis: int | None
    part: str = ""

    def evaluate(self, block: BlockView) -> int:
        array = InSymbol(self.field, self.part).select(block)
        if self.axis is None:
            return array.size
        if not -array.ndim <= self.axis < array.ndim:
            raise LaunchError(f"{self} asks for an axis that the block, {block}, does not have")
        return array.shape[self.axis]

    def __repr__(self) -> str:
        return f"{InSymbol(self.field, self.part)}" + (".size" if self.axis is None else f".shape[{self.axis}]")


_OPERATORS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "%": int.__mod__}


@dataclass(frozen=True, repr=False)
class ExtentOperation(ExtentExpression):
    """Two extents or integers, joined by an operator."""

    operator: str
    left: ExtentExpression | int
    right: ExtentExpression | int

    def evaluate(self, block: BlockView) -> int:
        left, right = (side.evaluate(block) if isinstance(side, ExtentExpression) else side
                       for side in (self.left, self.right))
        if right == 0 and self.operator in ("//", "%"):
            raise LaunchError(f"{self} divides by zero for the block {block}")
        return _OPERATORS[self.operator](left, right)

    def __repr__(self) -> str:
        left, right = (f"({side})" if isinstance(side, ExtentOperation) else str(side)
                       for side in (self.left, self.right))
        return f"-{right}" if (self.operator, left) == ("-", "0") else f"{left} {self.operator} {right}"


def _operation(operator: str, left: object, right: object) -> Any:
    sides: list[ExtentExpression | int] = []
    for side in (left, right):
        if isinstance(side, ExtentExpression):
            sides.append(side)
        elif isinstance(side, bool) or not isinstance(side, Integral):
            return NotImplemented
        else:
            sides.append(int(side))
    return ExtentOperation(operator, *sides)


# -- blocks -----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, repr=False)
class ShapeSymbol:
    """``IN.shape``."""

    field: str
    part: str = ""

    def __getitem__(self, axis: object) -> Extent:
        if isinstance(axis, bool) or not isinstance(axis, Integral):
            raise PlanError(f"{self} is asked for one axis by its number, not for {axis!r}")
        return Extent(self.field, int(axis), self.part)

    # How many axes there are is not known before there is a block.
    __iter__ = None

    def __repr__(self) -> str:
        return f"{InSymbol(self.field, self.part)}.shape"


@dataclass(frozen=True, repr=False)
class _BlockSymbol:
    field: str = ""

    def __getitem__(self, name: str) -> _BlockSymbol:
        if self.field or not isinstance(name, str) or not name:
            raise PlanError(f"{self}[{name!r}]: a field is named by one string, as in {type(self)()}[\"x\"]")
        return type(self)(name)

    # Fields are looked up by name: there is nothing to iterate over.
    __iter__ = None

    def __repr__(self) -> str:
        return type(self).__name__[:-6].upper() + (f'["{self.field}"]' if self.field else "")


@dataclass(frozen=True, repr=False)
class InSymbol(_BlockSymbol):
    """``IN``: the input block, or one of its fields; or where the items of its rows lie, ``part`` "#", or belong, "@".

    Examples
    --------
    >>> source = 'extern "C" __global__ void twice(float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
    >>> rows = sc.parallelize([np.float32([1, 2]), np.float32([3, 4])], 1).cache("GPU")
    >>> blocks = rows.exec(Kernels(source).twice, IN, OUT, grid=1, block=lambda b: int(np.prod(b.shape)))
    >>> [row.tolist() for row in blocks.collect()]
    [[2.0, 4.0], [6.0, 8.0]]
    """

    part: str = ""

    @property
    def shape(self) -> ShapeSymbol:
        """Its extents: ``IN.shape[0]``."""
        return ShapeSymbol(self.field, self.part)

    @property
    def size(self) -> Extent:
        """The number of its elements."""
        return Extent(self.field, None, self.part)

    @property
    def rows(self) -> InSymbol:
        """Where the items of each row lie, of rows of several lengths: int64 of shape (records, 2), the number of its
        first item and how many there are; of sparse vectors (records, 3), their size behind these.
        """
        return InSymbol(self.field, STARTS)

    @property
    def places(self) -> InSymbol:
        """The places of the items of sparse vectors (int32)."""
        return InSymbol(self.field, PLACES)

    def __repr__(self) -> str:
        return super().__repr__() + {STARTS: ".rows", PLACES: ".places"}.get(self.part, "")

    def select(self, block: BlockView) -> BlockView:
        """Return the part of a block that it stands for.

        Raises
        ------
        LaunchError
            If the block has named fields and this names none of them, or the other way round.
        """
        if self.part:
            array = InSymbol(self.field).select(block)
            return array.rows if self.part == STARTS else array.places
        if self.field:
            if self.field in block.fields:
                return block[self.field]
            has = f"which has the fields {_listed(block.fields)}" if block.fields else "which is one array: write IN"
            raise LaunchError(f"there is no {self} in the block, {has}")
        if block.fields:
            raise LaunchError(f"IN stands for a block that is one array; this one has the fields"
                              f" {_listed(block.fields)}: write IN[{block.fields[0]!r}]")
        return block


@dataclass(frozen=True, repr=False)
class OutSymbol(_BlockSymbol):
    """``OUT``: the output block, or one of its fields.

    Examples
    --------
    >>> source = 'extern "C" __global__ void twice(float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
    >>> rows = sc.parallelize([np.float32([1, 2]), np.float32([3, 4])], 1).cache("GPU")
    >>> blocks = rows.exec(Kernels(source).twice, IN, OUT, grid=1, block=lambda b: int(np.prod(b.shape)))
    >>> [row.tolist() for row in blocks.collect()]
    [[2.0, 4.0], [6.0, 8.0]]
    """


#: The input block's address; ``IN["x"]``, ``IN.shape[0]``, ``IN.size``, ``IN.rows``.
IN = InSymbol()

#: The output block's address; ``OUT["x"]``.
OUT = OutSymbol()
