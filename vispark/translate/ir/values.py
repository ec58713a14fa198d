"""Values of expressions while a kernel is written: numbers, arrays, tuples, functions.

A :class:`Number` is a C++ expression without side effects. An :class:`Array` is a recipe for its elements: nothing is
stored for ``2 * p[1:]`` until someone needs the storage, so row expressions become one loop without temporaries.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vispark.translate.ir.errors import NotConstant, Refusal
from vispark.translate.ir.nodes import Definition
from vispark.translate.ir.types import INT, Scalar, join

INT32 = -(2**31), 2**31 - 1


class _Unknown:
    """Mark of a number whose value is not known before the kernel runs."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()


@dataclass(frozen=True)
class Number:
    """A scalar.

    Attributes
    ----------
    text : str
        The C++ expression.
    value : Python number, or UNKNOWN
        Its value where it is known; only Python numbers are.
    bounds : (int, int) or None
        For a Python int: it lies between these. Within 32 bits the expression is an ``int``, else a ``long long``.
    atom : bool
        Whether the expression needs no parentheses.
    variable : bool
        Whether it names a variable that may be assigned again.
    sources : frozenset or None
        The captured or given Python ints that alone decide it; None where something else does too.
    limits : frozenset
        The captured or given Python ints that its bounds follow from, once they are known.
    numpy_int : str
        A captured or given NumPy integer that it is computed from, as the function calls it.
    common : bool
        Whether it is known to be the same for all cells of a grid.
    """

    type: Scalar
    text: str
    value: Any = UNKNOWN
    bounds: tuple[int, int] | None = None
    atom: bool = True
    variable: bool = False
    sources: frozenset[tuple[str, int]] | None = None
    limits: frozenset[tuple[str, int]] = frozenset()
    numpy_int: str = ""
    common: bool = False

    @property
    def known(self) -> bool:
        """Whether the value is known."""
        return self.value is not UNKNOWN

    @property
    def narrow(self) -> bool:
        """Whether it is a Python int that fits 32 bits."""
        return self.bounds is not None and INT32[0] <= self.bounds[0] and self.bounds[1] <= INT32[1]

    @property
    def c(self) -> str:
        """The C++ type of the expression."""
        return "int" if self.type == INT and self.narrow else self.type.c

    @property
    def closed(self) -> str:
        """The expression, in parentheses if it needs them."""
        return self.text if self.atom else f"({self.text})"


def given_number(value: Scalar, text: str, place: tuple[str, int], name: str) -> Number:
    """Return a number that was given or captured at a place, under a name of the function's."""
    return Number(value, text, sources=frozenset({place}) if value == INT else None,
                  numpy_int=name if value.kind in "iu" and not value.weak else "")


def derived(number: Number, *operands: Number) -> Number:
    """Return a computed number with the captured or given ints that determine it, from its operands."""
    sources: frozenset[tuple[str, int]] | None = None
    limits: frozenset[tuple[str, int]] = frozenset()
    if number.type.weak and not number.known:
        origins = [frozenset() if one.known else one.sources for one in operands]
        sets = [each for each in origins if each is not None]
        sources = frozenset().union(*sets) if len(sets) == len(origins) else None
        limits = limits_of(*operands) if sources is None else limits
    numpy_int = next((one.numpy_int for one in operands if one.numpy_int), "")
    if (sources, limits, numpy_int) == (number.sources, number.limits, number.numpy_int):
        return number
    return replace(number, sources=sources, limits=limits, numpy_int=numpy_int)


def limits_of(*numbers: Number) -> frozenset[tuple[str, int]]:
    """Return the captured or given ints that the bounds of numbers follow from."""
    return frozenset().union(*(number.sources or number.limits for number in numbers))


def chosen(kind: Value, test: Number, *ways: Value) -> Value:
    """Return a value that is chosen by a test, with the ints that determine the test and the alternatives."""
    if isinstance(kind, Number):
        return derived(kind, test, *(way for way in ways if isinstance(way, Number)))
    if isinstance(kind, Tuple | List):
        parts = zip(kind.items, *(way.items for way in ways if isinstance(way, Tuple | List)), strict=True)
        return replace(kind, items=tuple(chosen(item, test, *values) for item, *values in parts))
    return kind


def is_call(text: str) -> bool:
    """Return whether a text is one identifier, literal or call, which needs no parentheses."""
    if not re.match(r"\w+(<[\w ]+>)?\(", text):
        return text.isidentifier()
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == ")":
            return position == len(text) - 1
    return False


def bared(text: str) -> str:
    """Return a text without parentheses that enclose all of it."""
    if text.startswith("(") and text.endswith(")") and is_call(f"f{text}"):
        return text[1:-1]
    return text


@dataclass(frozen=True)
class Array:
    """An array of fixed shape.

    Attributes
    ----------
    element : callable
        From one C++ index expression per axis to the C++ expression of the element.
    cheap : bool
        Whether computing an element again costs less than keeping it.
    fresh : bool
        Whether it is a new array in Python, and not a view of another.
    volatile : bool
        Whether a variable array that it reads may still be written to.
    storage : str
        The C++ array that holds it, where it has one of its own that may be written to.
    """

    type: Scalar
    shape: tuple[int, ...]
    element: Callable[..., str] = field(compare=False)
    cheap: bool = True
    fresh: bool = False
    volatile: bool = False
    storage: str = ""

    def at(self, *indices: str) -> Number:
        """Return an element."""
        return Number(self.type, self.element(*indices))

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Tuple:
    """A tuple; ``names`` are the fields of a named one."""

    items: tuple[Value, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class List:
    """A list, whose items stay what they are."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Dict:
    """Dict display that a function returns."""

    names: tuple[str, ...]
    items: tuple[Value, ...]


@dataclass(frozen=True)
class Nothing:
    """None, Ellipsis, or a string, which is an option's."""

    what: str = "None"


@dataclass(frozen=True)
class Named:
    """A function or type of the library."""

    name: str


@dataclass(frozen=True)
class Method:
    """A method of a value."""

    value: Value
    name: str


@dataclass(frozen=True)
class LocalFunction:
    """A function of the user's with the defaults it was made with, and the frame whose variables it reads."""

    definition: Definition
    defaults: tuple[Value | None, ...]
    frame: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class ForRange:
    """Iterable of a ``for``: a range, an array's first axis, or several of these at once."""

    kind: str
    items: tuple[Any, ...]


@dataclass(frozen=True)
class Selected:
    """Items of an array whose number is only known as the kernel runs: those where a mask of its shape is true."""

    values: Array
    mask: Array
    #: The reason why it is none of known length, for what needs one.
    reason: str = ""

    def refusal(self) -> Refusal:
        """Return an error for what needs an array of known length."""
        return NotConstant(self.reason or _HOW_MANY)


@dataclass(frozen=True)
class RaggedRow:
    """A row whose length only data says.

    Attributes
    ----------
    length : str
        The C++ expression of its length, an ``int``.
    element : callable
        From a C++ index expression to the C++ expression of the item.
    inside : tuple of str
        The index variables of loops over the row, which are not checked.
    """

    type: Scalar
    length: str
    element: Callable[[str], str] = field(compare=False)
    inside: tuple[str, ...] = ()

    def at(self, index: str) -> Number:
        """Return an item."""
        return Number(self.type, self.element(index))


@dataclass(frozen=True)
class SparseRow:
    """A sparse vector: the places of its items, the items, and its size with zeros included."""

    indices: RaggedRow
    values: RaggedRow
    size: Number


Value = (Number | Array | Selected | RaggedRow | SparseRow | Tuple | List | Dict | Nothing | Named | Method
         | LocalFunction | ForRange)


@dataclass(frozen=True)
class ArrayType:
    """The type of an array."""

    element: Scalar
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.element} array {self.shape}"


@dataclass(frozen=True)
class DictType:
    """The type of a dict."""

    names: tuple[str, ...]
    items: tuple[Type, ...]

    def __str__(self) -> str:
        return "a dict"


@dataclass(frozen=True)
class ListType:
    """The type of a list."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"a list of {len(self.items)}"


@dataclass(frozen=True)
class NamedTupleType:
    """The type of a named tuple."""

    names: tuple[str, ...]
    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"a named tuple of {', '.join(self.names)}"


Type = Scalar | ArrayType | DictType | ListType | NamedTupleType | tuple[Any, ...] | Nothing


_HOW_MANY = ("how many items a mask selects is not known before the kernel runs, and lengths are compiled in; reduce "
             "them, as in p[mask].mean(), or keep all, as in np.where(mask, p, 0)")


def type_of(value: Value) -> Type:
    """Return the type of a value that a variable can hold.

    Raises
    ------
    Refusal
        For one that no variable can: a function, items whose number is not known.
    """
    if isinstance(value, Number):
        return value.type
    if isinstance(value, Array):
        return ArrayType(value.type, value.shape)
    if isinstance(value, Tuple):
        items = tuple(map(type_of, value.items))
        return NamedTupleType(value.names, items) if value.names else items
    if isinstance(value, List):
        return ListType(tuple(map(type_of, value.items)))
    if isinstance(value, Dict):
        return DictType(value.names, tuple(map(type_of, value.items)))
    if isinstance(value, Nothing):
        return value
    if isinstance(value, Selected):
        raise value.refusal()
    if isinstance(value, RaggedRow | SparseRow):
        raise Refusal("a row whose length only data says cannot be chosen while the kernel runs, or returned; reduce "
                      "it, as in (w[indices] * values).sum()")
    raise Refusal(f"{describe(value)} cannot be chosen while the kernel runs, or returned")


def join_types(a: Type, b: Type) -> Type:
    """Return the type of a variable that has either type."""
    if a == b:
        return a
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return join(a, b)
    if isinstance(a, ArrayType) and isinstance(b, ArrayType) and a.shape == b.shape:
        return ArrayType(join(a.element, b.element), a.shape)
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(map(join_types, a, b))
    if isinstance(a, ListType) and isinstance(b, ListType) and len(a.items) == len(b.items):
        return ListType(tuple(map(join_types, a.items, b.items)))
    if isinstance(a, DictType | NamedTupleType) and type(a) is type(b) and a.names == b.names:
        return replace(a, items=tuple(map(join_types, a.items, b.items)))
    raise Refusal(f"a value is {shown(a)} on one way and {shown(b)} on another; it must be of one shape on all")


def shown(kind: Type) -> str:
    """Return a type as an error says it."""
    if isinstance(kind, tuple):
        return f"a tuple of {len(kind)}"
    return kind.what if isinstance(kind, Nothing) else str(kind)


def describe(value: Value) -> str:
    """Return a value as an error says it."""
    if isinstance(value, Number | Array):
        return str(type_of(value))
    if isinstance(value, LocalFunction):
        return f"the function {value.definition.name}"
    if isinstance(value, Named | Method):
        return value.name.removeprefix("builtins.")
    words = {Tuple: "a tuple", List: "a list", Dict: "a dict", ForRange: "an iterable",
             Selected: "an array whose length is only known as the kernel runs",
             RaggedRow: "a row whose length only data says", SparseRow: "a sparse vector"}
    return value.what if isinstance(value, Nothing) else words[type(value)]


def plus(a: str, b: int) -> str:
    """Return an index expression with a number added."""
    if a.lstrip("-").isdigit():
        return str(int(a) + b)
    return a if b == 0 else f"{a} {'+' if b > 0 else '-'} {abs(b)}"


def times(a: str, b: int) -> str:
    """Return an index expression times a number."""
    if a.lstrip("-").isdigit():
        return str(int(a) * b)
    closed = a if a.isidentifier() or b == 1 else f"({a})"
    return a if b == 1 else f"{closed} * {b}"


def flat(base: str, shape: tuple[int, ...], *indices: str) -> str:
    """Return the element of a contiguous array."""
    terms: list[str] = []
    constant, stride = 0, 1
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        term = times(index, stride)
        if term.lstrip("-").isdigit():
            constant += int(term)
        else:
            terms.insert(0, term)
        stride *= extent
    return f"{base}[{plus(' + '.join(terms), constant) if terms else constant}]"


def stored(base: str, name: Scalar, shape: tuple[int, ...], **flags: Any) -> Array:
    """Return an array that lies contiguously at a C++ address."""
    return Array(name, shape, lambda *indices: flat(base, shape, *indices), **flags)


def reindexed(array: Array, shape: tuple[int, ...], where: Callable[..., tuple[str, ...]]) -> Array:
    """Return a view: ``where`` maps its indices to the array's."""
    return replace(array, shape=shape, element=lambda *indices: array.element(*where(*indices)), fresh=False,
                   storage="")
