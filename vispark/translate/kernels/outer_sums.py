"""Recognises sums of outer products among folded results, so that a thread block adds them up as a matrix product.

A matrix that a function returns is recognised by what it computes, whichever way it is written: item (i, j) is a
product, or a sum of products, of numbers that depend on i alone and numbers that depend on j alone. Then the row
function leaves these *factors*, two rows for each product, and the kernel around it adds up the products of a tile's
rows together (``vispark/outer.h``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Array

#: Smaller matrices are summed by the threads of a row, each with a part of it.
LEAST_ITEMS = 256
#: The most products that are added up in one item.
_MOST_PRODUCTS = 8
#: The names that stand for the place of an item while its text is looked at.
_I, _J = "place_i", "place_j"


@dataclass(frozen=True)
class Factor:
    """A row of ``count`` numbers of the C++ type ``c`` that the row function leaves under ``name``.

    One that is a part of the element's row stays where it is, from number ``first`` of the row ``row`` on.
    """

    name: str
    c: str
    itemsize: int
    count: int
    row: str = ""
    first: int = 0


@dataclass(frozen=True)
class OuterSum:
    """Folded matrix of ``high`` rows and ``broad`` columns: the sum of products of factors.

    ``symmetric`` says that item (j, i) is item (i, j), ``field`` which output it is, and ``base`` what its accumulators
    are called after.
    """

    field: str
    base: str
    c: str
    dtype: str
    high: int
    broad: int
    pairs: tuple[tuple[Factor, Factor], ...]
    symmetric: bool

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The factors, each once."""
        return tuple(dict.fromkeys(factor for pair in self.pairs for factor in pair))

    @property
    def partial(self) -> str:
        """Return the kernel's parameter for a work's accumulators."""
        return f"{self.base}_folds_partial"


class NotFactored(Exception):
    """Signal that an output is no sum of outer products."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class _Product:
    """Product of texts: those that depend on the first place, on the second, and on neither; each is multiplied by, or
    divided by.
    """

    negative: bool = False
    first: tuple[tuple[str, str], ...] = ()
    second: tuple[tuple[str, str], ...] = ()
    neither: tuple[tuple[str, str], ...] = ()

    def times(self, other: _Product, operator: str) -> _Product:
        """Return the product with another one, or the quotient."""
        def turned(parts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
            return tuple((operator, text) for _, text in parts)
        return _Product(self.negative != other.negative, self.first + turned(other.first),
                        self.second + turned(other.second), self.neither + turned(other.neither))


@dataclass
class Factored:
    """Products of a matrix's items, and the texts of their factors, of place ``place_i`` or ``place_j``."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    symmetric: bool = True


def factored(value: Array, kind: Scalar) -> Factored | None:
    """Return the factors of a matrix's items, if each item is a sum of products of such.

    Examples
    --------
    >>> matrix = Array(Scalar("float32"), (3, 4), lambda i, j: f"(c * (p[{i}] * q[{j} + 1]))")
    >>> factored(matrix, Scalar("float32")).pairs
    [('p[place_i] * c', 'q[place_j + 1]')]
    """
    if len(value.shape) != 2 or value.type != kind or kind.kind not in "iuf":
        return None
    products = list(_products(value.element(_I, _J), kind) or ())
    if not 0 < len(products) <= _MOST_PRODUCTS or not all(_multiplies(one.first) and _multiplies(one.second)
                                                          for one in products):
        return None
    factors = Factored(symmetric=value.shape[0] == value.shape[1])
    for one in products:
        factors.symmetric &= sorted(_moved(one.first)) == sorted(one.second)
        first = _joined((*one.first, *one.neither), kind, one.negative)
        factors.pairs.append((first, _joined(one.second, kind)))
    return factors


def _multiplies(parts: Sequence[tuple[str, str]]) -> bool:
    """Return whether something is multiplied by, and not only divided by."""
    return any(operator == "*" for operator, _ in parts)


def place(text: str, at: str) -> str:
    """Return the text of a factor at a place."""
    return re.sub(rf"\b(?:{_I}|{_J})\b", at, text)


def part_of_row(text: str) -> tuple[str, int] | None:
    """Return the name of the row of which a factor is a part, and its first number there; None for others.

    Examples
    --------
    >>> part_of_row("p[place_i + 1]")
    ('p', 1)
    """
    match = re.fullmatch(rf"(\w+)\[(?:{_I}|{_J})(?: \+ (\d+))?\]", text)
    return None if match is None else (match[1], int(match[2] or 0))


def _moved(parts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(operator, text.replace(_I, _J)) for operator, text in parts]


def _joined(parts: Sequence[tuple[str, str]], kind: Scalar, negative: bool = False) -> str:
    """Return parts as one expression, in the products' own type."""
    # What divides comes last, so that the first one is a number that is multiplied.
    ordered = sorted(parts, key=lambda part: part[0] == "/")
    text = " ".join(f"{operator} {_typed(part, kind)}" if number else _typed(part, kind)
                    for number, (operator, part) in enumerate(ordered))
    return f"-({text})" if negative else text


def _typed(text: str, kind: Scalar) -> str:
    simple = re.fullmatch(r"[\w.]+(\[[^][]*\])?", text)
    closed = text if simple else f"({text})"
    return closed if kind.dtype == "float32" else f"({kind.c}){closed}"


# -- reading expressions ----------------------------------------------------------------------------------------------

def _products(text: str, kind: Scalar) -> list[_Product] | None:
    """Return the products whose sum a text is; None if some of it is neither."""
    text = _bare(text)
    parts = _split(text, "+-")
    if len(parts) > 1:
        products: list[_Product] = []
        for operator, part in parts:
            inner = _products(part, kind)
            if inner is None:
                return None
            products += [one.times(_Product(operator == "-"), "*") for one in inner]
        return products
    depends = _I in text, _J in text
    if text.startswith("-") and len(_split(text[1:], "+-")) == 1 and all(depends):
        negated = _products(text[1:], kind)
        return None if negated is None else [one.times(_Product(True), "*") for one in negated]
    parts = _split(text, "*/")
    if kind.kind != "f" and any(operator == "/" for operator, _ in parts):
        parts = []
    if len(parts) > 1:
        return _multiplied(parts, kind)
    cast = f"({kind.c})"
    if all(depends) and kind.kind in "iu" and text.startswith(cast):
        return _products(text[len(cast):], kind)
    if all(depends):
        return None
    return [_only(text)]


def _multiplied(parts: Sequence[tuple[str, str]], kind: Scalar) -> list[_Product] | None:
    """Return the products that a product is: a sum of several may be multiplied by what is none."""
    products = [_Product()]
    for operator, part in parts:
        both = _I in part and _J in part
        if operator == "/":
            if both:
                return None
            products = [one.times(_only(part), operator) for one in products]
            continue
        inner = _products(part, kind)
        if not both and (inner is None or len(inner) > 1):
            inner = [_only(part)]
        if inner is None or len(products) * len(inner) > _MOST_PRODUCTS:
            return None
        products = [_whole(one, other) for one in products for other in inner]
    return products


def _only(text: str) -> _Product:
    part = (("*", text),)
    return _Product(first=part) if _I in text else _Product(second=part) if _J in text else _Product(neither=part)


def _whole(one: _Product, other: _Product) -> _Product:
    """Return the product of two, the second of which keeps its divisions."""
    return _Product(one.negative != other.negative, one.first + other.first, one.second + other.second,
                    one.neither + other.neither)


def _bare(text: str) -> str:
    """Return a text without parentheses around all of it."""
    text = text.strip()
    while text.startswith("(") and _closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closing(text: str, start: int) -> int:
    """Return the place where the parenthesis at a place is closed."""
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] in "([{") - (text[position] in ")]}")
        if depth == 0:
            return position
    return -1


def _split(text: str, operators: str) -> list[tuple[str, str]]:
    """Return a text's operands of some binary operators, each with the operator before it; a single one if it has
    others of lower precedence, or none.
    """
    terms, start, operator = list[tuple[str, str]](), 0, operators[0]
    for position, word in _outer_words(text):
        if word not in ("+", "-", "*", "/"):
            return [(operators[0], text)]
        if word in operators:
            terms.append((operator, text[start:position].strip()))
            operator, start = word, position + len(word) + 1
    return [*terms, (operator, text[start:].strip())]


def _outer_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the binary operators of a text outside of all parentheses, which have blanks around them."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        word = re.match(r" ([^\s\w\])]+) ", text[position:]) if depth == 0 and letter == " " else None
        if word is not None:
            yield position + 1, word[1]
