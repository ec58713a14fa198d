"""The intermediate form: a function without dtypes, as frozen records that are equal by content.

A :class:`Function` is what ``vmap`` records and a plan carries. Names are resolved: what is left is local, captured by
value, or one of the library's names. Places in the user's file are kept for error messages and do not count in
comparisons, so a function that is defined twice is one function.

::

    Expression   Literal Local Captured Library Called Unary Binary Compare Logical Choice Call Attribute Index FieldOf
                 Slice TupleOf ListOf DictOf Each Listed Spread
    Statement    Assign Augment If For While Break Continue Return
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from gpu_worker.protocol import frozen
from gpu_worker.protocol.shared import Shared
from vispark._utils.hashing import hashed_once
from vispark.translate.ir.references import Described, Reference


@dataclass(frozen=True)
class At:
    """A range of the user's file: lines from 1, columns from 0."""

    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0


@dataclass(frozen=True)
class Node:
    """Anything that stands at a place in the user's file."""

    at: At = field(default=At(), compare=False, repr=False, kw_only=True)


class Expression(Node):
    """Something with a value."""


class Statement(Node):
    """Something that is done."""


# -- values -----------------------------------------------------------------------------------------------------------

@frozen.dataclass(frozen=True, slots=True)
class Constant:
    """A number or an array at one moment.

    Attributes
    ----------
    dtype : str
        NumPy's string for it, in native byte order.
    shape : tuple of int
        () for a number.
    data : bytes, Shared or Reference
        The elements in C order, or what stands for those that workers hold.
    weak : bool
        Whether it is a Python number, whose type gives way to NumPy's.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | Shared | Reference = field(repr=False)
    weak: bool = False

    @property
    def array(self) -> np.ndarray:
        """The value as an array; of a value that is passed by reference dtype and shape alone, without elements."""
        if isinstance(self.data, Reference):
            return Described.of(self.dtype, self.shape)
        return np.frombuffer(bytes(self.data), self.dtype).reshape(self.shape)

    @property
    def number(self) -> Any:
        """The value of a number: Python's if it is weak, else NumPy's."""
        scalar = self.array[()]
        return scalar.item() if self.weak else scalar


@frozen.dataclass(frozen=True, slots=True)
class Capture:
    """A closure's or a module's variable by value, under the name that the function has for it."""

    name: str
    value: Constant


# -- expressions ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Literal(Expression):
    """A number, bool, None, Ellipsis or string written in the source, or a module's constant such as ``math.pi``."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        # 1, 1.0 and True are different programs, and so are 0.0 and -0.0.
        return type(self.value).__name__, repr(self.value)


@dataclass(frozen=True)
class Local(Expression):
    """A parameter or a local variable."""

    name: str


@dataclass(frozen=True)
class Captured(Expression):
    """One of the function's captures, by number."""

    number: int
    name: str = field(compare=False)


@dataclass(frozen=True)
class Library(Expression):
    """A function or type of Python, ``math``, ``operator`` or NumPy, such as ``"numpy.exp"``."""

    name: str


@dataclass(frozen=True)
class Called(Expression):
    """Another function of the user's, or one defined inside this one."""

    definition: Definition


@dataclass(frozen=True)
class Unary(Expression):
    """``-x``, ``+x``, ``~x`` or ``not x``; ``operator`` is as it is written."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary(Expression):
    """``left operator right``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Compare(Expression):
    """A chain of comparisons."""

    first: Expression
    operators: tuple[str, ...]
    others: tuple[Expression, ...]


@dataclass(frozen=True)
class Logical(Expression):
    """``and`` or ``or``, with short circuit."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Choice(Expression):
    """``yes if test else no``."""

    test: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True)
class Call(Expression):
    """A call; ``function`` is a :class:`Library`, a :class:`Called`, a local function or a method."""

    function: Expression
    arguments: tuple[Expression, ...]
    keywords: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True)
class Attribute(Expression):
    """``value.name``."""

    value: Expression
    name: str


@dataclass(frozen=True)
class Index(Expression):
    """``value[indices]``."""

    value: Expression
    indices: tuple[Expression, ...]


@dataclass(frozen=True)
class FieldOf(Expression):
    """``value["name"]``."""

    value: Expression
    name: str


@dataclass(frozen=True)
class Slice(Expression):
    """Slice ``start:stop:step``; omitted parts are None."""

    start: Expression | None
    stop: Expression | None
    step: Expression | None


@dataclass(frozen=True)
class TupleOf(Expression):
    """``(a, b)``; ``names`` are the fields of a named tuple."""

    items: tuple[Expression, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListOf(Expression):
    """``[a, b]``, which may only be given to ``np.array`` and its like."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class DictOf(Expression):
    """``{"name": value}``, which may only be returned."""

    names: tuple[str, ...]
    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Each(Expression):
    """A generator expression, given to ``sum``, ``min``, ``max``, ``any`` or ``all``.

    Over several iterables its value is the one over the rest.
    """

    value: Expression
    target: Expression
    iterable: Expression
    conditions: tuple[Expression, ...]


@dataclass(frozen=True)
class Listed(Expression):
    """A list comprehension over one iterable."""

    value: Expression
    target: Expression
    iterable: Expression
    conditions: tuple[Expression, ...]


@dataclass(frozen=True)
class Spread(Expression):
    """``*value`` among a call's arguments, or among the names that are assigned to."""

    value: Expression


# -- statements -------------------------------------------------------------------------------------------------------

Statements = tuple[Statement, ...]


@dataclass(frozen=True)
class Assign(Statement):
    """``target = value``, for each target from left to right."""

    targets: tuple[Expression, ...]
    value: Expression


@dataclass(frozen=True)
class Augment(Statement):
    """``target operator= value``."""

    target: Expression
    operator: str
    value: Expression


@dataclass(frozen=True)
class If(Statement):
    """``if``, ``elif``, ``else``."""

    test: Expression
    body: Statements
    orelse: Statements


@dataclass(frozen=True)
class For(Statement):
    """``for target in iterable``, with its ``else``."""

    target: Expression
    iterable: Expression
    body: Statements
    orelse: Statements


@dataclass(frozen=True)
class While(Statement):
    """``while``, with its ``else``."""

    test: Expression
    body: Statements
    orelse: Statements


class Break(Statement):
    """``break``."""


class Continue(Statement):
    """``continue``."""


@dataclass(frozen=True)
class Return(Statement):
    """``return value``."""

    value: Expression


# -- functions --------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Parameter:
    """Parameter of a function, with its default; ``many`` marks one that takes all remaining arguments."""

    name: str
    default: Expression | None = field(default=None, repr=False)
    keyword_only: bool = field(default=False, repr=False)
    many: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class SourceText:
    """A piece of the user's file; ``first`` is the number of its first line."""

    file: str
    first: int
    lines: tuple[str, ...] = field(repr=False)


@hashed_once
@dataclass(frozen=True)
class Definition:
    """A function's parameters and body.

    ``free`` are the variables of the enclosing function that it reads; they have the values that they have when it is
    called. ``halo`` is the stencil's width to either side of each axis, None for a function that is no stencil.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: Statements
    free: tuple[str, ...] = ()
    halo: tuple[tuple[int, int], ...] | None = None
    text: SourceText = field(default=SourceText("", 0, ()), compare=False, repr=False)
    at: At = field(default=At(), compare=False, repr=False)

    @cached_property
    def taken(self) -> int | None:
        """How many arguments it takes by their place, the element among them; None for as many as there are."""
        if any(parameter.many for parameter in self.parameters):
            return None
        return sum(not parameter.keyword_only for parameter in self.parameters)

    @cached_property
    def reaches_out(self) -> bool:
        """Whether it reads neighbours of its cell."""
        return any(width for sides in self.halo or () for width in sides)


@frozen.dataclass(frozen=True, slots=True)
class Function:
    """Traced function, as a plan carries it. Hashable, picklable, equal by content.

    Attributes
    ----------
    definition : Definition
        Its code; equal for two closures of the same code.
    captures : tuple of Capture
        The values that it and the functions it calls took from around them.
    """

    definition: Definition
    captures: tuple[Capture, ...] = ()

    @property
    def name(self) -> str:
        """The function's name."""
        return self.definition.name


# -- going over it ----------------------------------------------------------------------------------------------------

def parts(node: Node) -> Iterator[Any]:
    """Yield the nodes that a node is made of, those in tuples too; of a function that is called none."""
    for described in fields(node):
        yield from _direct(getattr(node, described.name))


def _direct(value: object) -> Iterator[Node]:
    if isinstance(value, tuple):
        for one in value:
            yield from _direct(one)
    elif isinstance(value, Node):
        yield value


def nodes_of(part: object, *, called: bool = False) -> Iterator[Any]:
    """Yield a node, or several in a tuple, and all under them; if wanted, those of functions that are called, too."""
    for node in _direct(part):
        yield node
        yield from nodes_of(tuple(parts(node)), called=called)
        if called and isinstance(node, Called):
            yield from nodes_of(node.definition.body, called=True)
