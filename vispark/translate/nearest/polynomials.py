"""Polynomials in a row and the rows of a matrix, as far as distances between them need.

A row ``p`` has items along an axis ``d``; a matrix ``c`` of centres has rows along ``k``, each with items along ``d``.
``(p - c) ** 2``, written in whatever way, is one polynomial in p[d] and c[k, d]; so is its sum over d, and two
spellings of a distance are the same when their polynomials are. What is no such polynomial raises :class:`Other`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

#: Powers of p[d] and of c[k, d] in a term, and how d was folded: "", "sum" or "mean".
Term = tuple[int, int, str]

_ONE: Term = (0, 0, "")

#: An axis that broadcasting made, of extent 1.
NEW = "new"


class Other(Exception):
    """Signal that the code is not of the recognised kind."""


@dataclass(frozen=True)
class Poly:
    """A polynomial with an element for each place along its axes.

    Attributes
    ----------
    axes : tuple of str
        "d", "k" or NEW, in the array's order; () for a number.
    terms : dict
        The coefficient of each term; and of each name of a loop's accumulator, which stands for what it was before.
    d, k : str
        Which place along d and k the items are taken at: "" where there are none, "axis" for all along an axis of its
        own, or the name of a loop's variable.
    """

    axes: tuple[str, ...]
    terms: Mapping[Term | str, Fraction]
    d: str = ""
    k: str = ""

    @property
    def number(self) -> Fraction | None:
        """The value of a constant, else None."""
        return self.terms.get(_ONE, Fraction(0)) if set(self.terms) <= {_ONE} and not self.axes else None


@dataclass(frozen=True)
class Root:
    """The square root of a polynomial."""

    of: Poly


@dataclass(frozen=True)
class Absolute:
    """The absolute value of a polynomial."""

    of: Poly


def constant(value: Fraction | int) -> Poly:
    """Return a number."""
    return Poly((), {_ONE: Fraction(value)} if value else {})


ROW = Poly(("d",), {(1, 0, ""): Fraction(1)}, d="axis")
MATRIX = Poly(("k", "d"), {(0, 1, ""): Fraction(1)}, d="axis", k="axis")


def accumulator(name: str) -> Poly:
    """Return a number that a loop adds to, as it is before the loop's body."""
    return Poly((), {name: Fraction(1)})


def add(left: Poly, right: Poly, sign: int = 1) -> Poly:
    """Return ``left + right``, or ``left - right``."""
    axes, d, k = _broadcast(left, right)
    terms = dict(left.terms)
    for term, value in right.terms.items():
        terms[term] = terms.get(term, Fraction(0)) + sign * value
    return Poly(axes, {term: value for term, value in terms.items() if value}, d, k)


def multiply(left: Poly, right: Poly) -> Poly:
    """Return ``left * right``, item by item."""
    axes, d, k = _broadcast(left, right)
    terms: dict[Term | str, Fraction] = {}
    for one, a in left.terms.items():
        for other, b in right.terms.items():
            term = _product(one, other)
            terms[term] = terms.get(term, Fraction(0)) + a * b
    return Poly(axes, {term: value for term, value in terms.items() if value}, d, k)


def fold(poly: Poly, how: str, place: str = "axis") -> Poly:
    """Return the sum or the mean along d, taken at ``place``.

    What does not change along d is added as often as d is long, which is not known: that is no polynomial.
    """
    if poly.d != place:
        raise Other
    terms: dict[Term | str, Fraction] = {}
    for term, value in poly.terms.items():
        if isinstance(term, str) or term[2] or term == _ONE:
            raise Other
        terms[(term[0], term[1], how)] = value
    return Poly(tuple(axis for axis in poly.axes if axis != "d"), terms, "", poly.k)


def along(value: object, axis: object) -> Poly:
    """Return a polynomial whose axis of that number is d; all of a row without a number."""
    if not isinstance(value, Poly):
        raise Other
    if axis is None:
        if value.axes != ("d",):
            raise Other
        return value
    number = axis.number if isinstance(axis, Poly) else None
    if number is None or not -len(value.axes) <= number < len(value.axes) or value.axes[int(number)] != "d":
        raise Other
    return value


def dot(left: Poly, right: Poly) -> Poly:
    """Return ``left @ right``: along the last axis of the one and the first or last but one of the other."""
    if NEW in left.axes + right.axes or not left.axes or not right.axes:
        raise Other
    inner = right.axes[0] if len(right.axes) < 2 else right.axes[-2]
    if left.axes[-1] != "d" or inner != "d" or len(left.axes) + len(right.axes) > 3:
        raise Other
    axes = tuple(axis for axis in left.axes + right.axes if axis != "d")
    product = multiply(replace(left, axes=()), replace(right, axes=()))
    return fold(replace(product, axes=axes), "sum")


def einsum(subscripts: object, operands: Sequence[object]) -> Poly:
    """Return ``np.einsum`` of one or two operands, whose letters stand for one axis each."""
    if not isinstance(subscripts, str):
        raise Other
    inputs, arrow, outputs = subscripts.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if len(letters) != len(operands) or not 1 <= len(operands) <= 2:
        raise Other
    if not arrow:
        outputs = "".join(sorted(letter for letter in set(inputs) - {","} if inputs.count(letter) == 1))
    meaning: dict[str, str] = {}
    product = constant(1)
    for names, operand in zip(letters, operands, strict=True):
        if not isinstance(operand, Poly) or len(names) != len(operand.axes) or len(set(names)) < len(names) \
                or not (names or "a").isalpha():
            raise Other
        for name, axis in zip(names, operand.axes, strict=True):
            if axis == NEW or meaning.setdefault(name, axis) != axis:
                raise Other
        product = multiply(product, replace(operand, axes=()))
    axes = tuple(meaning.get(name, NEW) for name in outputs)
    gone = sorted(meaning[name] for name in meaning if name not in outputs)
    if len(set(meaning.values())) < len(meaning) or NEW in axes or gone not in ([], ["d"]):
        raise Other
    product = replace(product, axes=axes)
    return fold(product, "sum") if gone else product


def spread(value: object, axis: str, place: str) -> Poly | Root:
    """Return the values along an axis, given the value at one place of it."""
    if isinstance(value, Root):
        inner = spread(value.of, axis, place)
        assert isinstance(inner, Poly)
        return Root(inner)
    if not isinstance(value, Poly) or value.axes or (value.d, value.k) != ((place, "") if axis == "d" else ("", place)):
        raise Other
    return replace(value, axes=(axis,), d="axis") if axis == "d" else replace(value, axes=(axis,), k="axis")


def moved(value: object, place: str) -> object:
    """Return the value for the centre at another place."""
    if isinstance(value, Root):
        return Root(replace(value.of, k=place))
    return replace(value, k=place) if isinstance(value, Poly) else value


def at(poly: Poly, axis: int, place: str) -> Poly:
    """Return the items at one place along an axis, the place of a loop's variable."""
    name = poly.axes[axis]
    if name not in ("d", "k"):
        raise Other
    axes = poly.axes[:axis] + poly.axes[axis + 1:]
    return replace(poly, axes=axes, d=place) if name == "d" else replace(poly, axes=axes, k=place)


def distance(poly: Poly) -> int:
    """Return 1 if a polynomial is, for each k, the squared distance of the row from the centre k, times a positive
    factor and plus a term that is the same for all k; -1 for a negative factor; 0 for other polynomials.
    """
    varying = {term: value for term, value in poly.terms.items() if isinstance(term, str) or term[1]}
    if len(varying) != 2 or any(isinstance(term, str) for term in poly.terms):
        return 0
    for how in ("sum", "mean"):
        square, product = varying.get((0, 2, how)), varying.get((1, 1, how))
        if square is not None and product is not None and product == -2 * square:
            return 1 if square > 0 else -1
    return 0


def _product(one: Term | str, other: Term | str) -> Term | str:
    if one == _ONE:
        return other
    if other == _ONE:
        return one
    if isinstance(one, str) or isinstance(other, str) or one[2] or other[2]:
        raise Other
    return one[0] + other[0], one[1] + other[1], ""


def _broadcast(left: Poly, right: Poly) -> tuple[tuple[str, ...], str, str]:
    """Return the axes and places of what two polynomials broadcast to."""
    width = max(len(left.axes), len(right.axes))
    axes = []
    for one, other in zip(*((NEW,) * (width - len(each.axes)) + each.axes for each in (left, right)), strict=True):
        if one != other and NEW not in (one, other):
            raise Other
        axes.append(other if one == NEW else one)
    if len(set(axes) - {NEW}) < len([axis for axis in axes if axis != NEW]):
        raise Other             # d against d along two axes
    return tuple(axes), _place(left.d, right.d), _place(left.k, right.k)


def _place(one: str, other: str) -> str:
    if one and other and one != other:
        raise Other
    return one or other
