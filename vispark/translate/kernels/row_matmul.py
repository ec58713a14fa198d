"""Recognises products of the element's row with a matrix, so that the rows of a tile are multiplied together.

A product is recognised by what its sums add up, whichever way it is written: each item is a sum of numbers of the row
times numbers of a matrix, at places that go on evenly. Then the row function reads the product's items, and the kernel
around it computes them for a whole tile (``vispark/products.h``), each in the order of a loop over the row.

A row may also be computed, as the second layer's in ``np.tanh(p @ m) @ m2``. Then a function of its own, a *stage*,
leaves it for all rows of a tile before they are multiplied.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from vispark.translate.codegen.dispatch import expression
from vispark.translate.codegen.elementwise import elementwise
from vispark.translate.codegen.emitter import Emitter, Lines, NoProducts, Serial
from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.syntax.assignments import in_place
from vispark.translate.codegen.syntax.comprehensions import bind_target
from vispark.translate.codegen.syntax.iterables import count_of, item_at
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.errors import Refusal, TranslationError
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Array, ForRange, Number, stored

#: Smaller products are written out; of longer rows no tile of many fits shared memory.
LEAST, LEAST_TERMS = 8, 64
_MOST_ROW_BYTES, _MOST_PRODUCT_BYTES = 4096, 2048
_TYPES = frozenset({"float32", "float64"})

#: A factor that is computed: a call, what is in parentheses, or an item, each perhaps converted.
_CONVERTED = r"(?:\((?:float|double)\))?[\w:]*(?:<[\w ]+>)?"
_COMPUTED = rf"{_CONVERTED}(?:\(.*\)|\[.*\])"
_FACTOR = r"\(?(?:\((?:float|double)\))?(\w+)\[(\d+)\]\)?"
_TERM = re.compile(rf"\(?{_FACTOR} \* {_FACTOR}\)?")
_OTHER = r"\(?(?:\((?:float|double)\))?(?P<name>\w+)\[(?P<place>[^][]*)\]\)?"
_SIDES = (re.compile(rf"(?P<row>{_COMPUTED}) \* {_OTHER}"), re.compile(rf"{_OTHER} \* (?P<row>{_COMPUTED})"))
#: What is never left out of the row function's own lines, which would compute it a second time.
_LASTING = re.compile(r"\s*(?:while|for \(long long|do \{|\[&\])")
_ITEM = re.compile(r"(\w+)\[(\d+)\]")


@dataclass(frozen=True)
class Product:
    """The product of a part of a row with a matrix.

    Item j of ``width`` is the sum over k below ``terms`` of ``row[first + k] * matrix[base + k * down + j * across]``,
    in numbers of the C++ type ``c`` and the itemsize ``itemsize``. ``row_c`` and ``matrix_c`` are the factors' types.
    """

    name: str
    row: str
    matrix: str
    first: int
    base: int
    down: int
    across: int
    terms: int
    width: int
    c: str
    itemsize: int
    row_c: str
    matrix_c: str


@dataclass(frozen=True)
class ProductRow:
    """A row of ``count`` numbers that the lines of a function leave under ``name``, so that it is multiplied.

    The first ``before`` lines are those of the row function itself; where the row is an array of it, ``array`` is its
    name.
    """

    name: str
    c: str
    count: int
    itemsize: int
    lines: tuple[str, ...]
    before: int = 0
    array: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        return self.count * self.itemsize


#: The text of term k of a sum, and of item j; k is a number or the name of a variable.
TermText = Callable[[int | str], str]
TermsText = Callable[[int, int | str], str]


@dataclass
class _Probe:
    """Recorder of a sum's terms while an expression is only probed: the text of each term, by its number."""

    sums: list[tuple[TermText, int, Scalar]] = field(default_factory=list)


def _within(text: str) -> bool:
    """Return whether the parentheses and brackets of a text close in it, in order."""
    depth = 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            return False
    return depth == 0


def _whole(text: str) -> bool:
    """Return whether a text is one operand: converted, called or indexed, and nothing beside that."""
    inner = re.fullmatch(rf"{_CONVERTED}[(\[](.*)[)\]]", text)
    return inner is not None and _within(inner[1])


def _parted(text: str, side: int) -> tuple[str, str, str] | None:
    """Return the computed factor of a term, and the name and the place of the other one."""
    bare = text[1:-1] if text.startswith("(") and text.endswith(")") and _within(text[1:-1]) else text
    match = _SIDES[side].fullmatch(bare)
    if match is None or not _whole(match["row"]):
        return None
    return match["row"], match["name"], match["place"]


def _affine_places(places: dict[tuple[int, int], int], width: int, terms: int) -> tuple[int, int, int] | None:
    """Return base, and steps along items and terms, of places at equal distances; None of others."""
    base = places[0, 0]
    across, down = places[1, 0] - base, places[0, 1] - base
    even = all(place == base + j * across + k * down for (j, k), place in places.items())
    return (base, across, down) if even else None


class RowProducts(NoProducts):
    """Products that a row function has with matrices, found as its lines are written.

    Parameters
    ----------
    emit : Emitter
        Writes the row function.
    factor_of : callable
        Gives the role of a name in an expression: ("row", its type) or ("matrix", its type); None for others.
    multiplied : bool
        Whether the kernel around the function can multiply.
    """

    def __init__(self, emit: Emitter, factor_of: Callable[[str], tuple[str, Scalar] | None], multiplied: bool) -> None:
        self.emit, self.factor_of, self.multiplied = emit, factor_of, multiplied
        self.products: dict[tuple[object, ...], Product] = {}
        self.stages: dict[str, ProductRow] = {}
        #: The lines of the row function itself, outside of which nothing is multiplied that was computed.
        self.base: Lines | None = None
        self.probe: _Probe | None = None

    # -- sums that are only asked about -------------------------------------------------------------------------------

    def placeholder(self, text: TermText, terms: int, kind: Scalar) -> Number | None:
        """Return the placeholder of a sum of terms, and record the sum, if an expression is only probed; else None."""
        if self.probe is None:
            return None
        self.probe.sums.append((text, terms, kind))
        return Number(kind, f"asked_about_{len(self.probe.sums)}", variable=False)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[_Probe]:
        before = self.probe, dict(self.emit.frame.variables), set(self.emit.taken), self.emit.scratch
        self.probe = _Probe()
        try:
            with self.emit.detached():
                yield self.probe
        finally:
            self.probe, self.emit.frame.variables, self.emit.taken, self.emit.scratch = before

    def product_over(self, steps: ForRange, target: nodes.Expression, value: nodes.Expression) -> Array | None:
        """Return the items ``value for target in steps`` where they are those of a product."""
        width = count_of(steps)
        if not self.multiplied or self.probe is not None or width is None or width < LEAST:
            return None
        by_place: dict[int, tuple[TermText, int, Scalar]] = {}
        for j in (0, 1, width - 1):
            one = self._sum_at(steps, target, value, j)
            if one is None:
                return None
            by_place[j] = one
        _, terms, kind = by_place[0]
        if any(one[1:] != (terms, kind) for one in by_place.values()):
            return None
        return self.product_of(lambda j, k: by_place[j][0](k), width, terms, kind)

    def _sum_at(self, steps: ForRange, target: nodes.Expression, value: nodes.Expression,
                number: int) -> tuple[TermText, int, Scalar] | None:
        """Return the one sum that an item is."""
        try:
            with self._asking() as probe:
                with in_place(self.emit):
                    bind_target(self.emit, target, item_at(steps, number))
                item = expression(self.emit, value)
        except (Refusal, TranslationError, Serial):
            return None
        if len(probe.sums) != 1 or not isinstance(item, Number) or item.text != "asked_about_1":
            return None
        return probe.sums[0]

    # -- products -----------------------------------------------------------------------------------------------------

    def product_of(self, text: TermsText, width: int, terms: int, kind: Scalar) -> Array | None:
        """Return the array of a product's items, if the text of its terms is that of a row's product with a matrix."""
        if not self.multiplied or self.probe is not None or kind.dtype not in _TYPES or kind.weak or width < LEAST \
                or terms < LEAST or width * terms < LEAST_TERMS:
            return None
        places: dict[int, dict[tuple[int, int], int]] = {0: {}, 1: {}}
        names: set[tuple[str, str]] = set()
        for j in {0, 1, width - 1}:
            for k in {0, 1, terms - 1}:
                match = _TERM.fullmatch(text(j, k))
                if match is None:
                    return self._of_computed(text, width, terms, kind)
                names.add((match[1], match[3]))
                places[0][j, k], places[1][j, k] = int(match[2]), int(match[4])
        if len(names) != 1:
            return None
        even = [_affine_places(places[side], width, terms) for side in (0, 1)]
        product = self._product(names.pop(), even, width, terms, kind)
        return self._of_computed(text, width, terms, kind) if product is None else product

    def _of_computed(self, text: TermsText, width: int, terms: int, kind: Scalar) -> Array | None:
        """Return the product of a row that was computed, here in the row function's own lines."""
        nbytes = max(width, terms) * kind.numpy.itemsize
        if self.base is None or self.emit.out is not self.base or self.base.depth != 1 \
                or nbytes > _MOST_PRODUCT_BYTES or any(_LASTING.match(line) for line in self.base.lines):
            return None
        for side in (0, 1):
            parts = {(j, k): _parted(text(j, k), side) for j in (0, 1, width - 1) for k in (0, 1, terms - 1)}
            if not all(part and part[2].isdecimal() for part in parts.values()) \
                    or len({part[1] for part in parts.values() if part}) != 1:
                continue
            rows = {k: {part[0] for (_, at), part in parts.items() if part and at == k} for k in (0, 1, terms - 1)}
            name = next(part[1] for part in parts.values() if part)
            across = _affine_places({key: int(part[2]) for key, part in parts.items() if part}, width, terms)
            matrix = self.factor_of(name)
            if any(len(row) != 1 for row in rows.values()) or across is None or matrix is None \
                    or matrix[0] != "matrix" or matrix[1].dtype not in _TYPES:
                continue
            stage = self._stage({k: row.pop() for k, row in rows.items()}, functools.partial(text, 0), side, terms,
                                kind)
            if stage is None:
                continue
            product = Product(self.emit.lasting(f"{stage.name}_by_{name}"), stage.name, name, 0, across[0], across[2],
                              across[1], terms, width, kind.c, kind.numpy.itemsize, stage.c, matrix[1].c)
            self.products[stage.name,] = product
            return stored(product.name, kind, (width,), cheap=True, fresh=True)
        return None

    def _stage(self, items: dict[int, str], text: TermText, side: int, terms: int, kind: Scalar) -> ProductRow | None:
        """Return the stage that stores a computed row for a product, from its items by number and the text of the
        terms; None if there is none.
        """
        assert self.base is not None
        matches = {k: _ITEM.fullmatch(item) for k, item in items.items()}
        steps = _affine_places({(j, k): int(one[2]) for k, one in matches.items() if one for j in (0, 1)}, 2, terms) \
            if all(matches.values()) and len({one[1] for one in matches.values() if one}) == 1 else None
        name = self.emit.lasting("staged")
        with self.emit.detached() as lines, self.emit.along((terms,)) as (place,):
            if steps is not None and self.factor_of(items[0].partition("[")[0]) is None:
                item = f"{items[0].partition('[')[0]}[{steps[0]} + {steps[2]} * {place}]"
            else:
                try:
                    part = _parted(text(place), side)
                except (Refusal, TranslationError, Serial):
                    return None
                if part is None:
                    return None
                item = part[0]
            self.emit.line(f"{name}[{place}] = {item};")
        array = items[0].partition("[")[0]
        if steps is None or steps[::2] != (0, 1) or self.emit.sizes.get(array) != terms:
            array = ""
        self.stages[name] = ProductRow(name, kind.c, terms, kind.numpy.itemsize, (*self.base.lines, *lines.lines),
                                       len(self.base.lines), array)
        return self.stages[name]

    def _product(self, names: tuple[str, str], even: list[tuple[int, int, int] | None], width: int, terms: int,
                 kind: Scalar) -> Array | None:
        factors = [self.factor_of(name) for name in names]
        for row, matrix in ((0, 1), (1, 0)):
            of_row, of_matrix, along, across = factors[row], factors[matrix], even[row], even[matrix]
            if of_row is None or of_matrix is None or (of_row[0], of_matrix[0]) != ("row", "matrix") \
                    or {of_row[1].dtype, of_matrix[1].dtype} - _TYPES:
                continue
            if along is None or across is None or along[1:] != (0, 1):
                continue
            nbytes = width * kind.numpy.itemsize
            if nbytes > _MOST_PRODUCT_BYTES or (along[0] + terms) * of_row[1].numpy.itemsize > _MOST_ROW_BYTES:
                return None
            key = (names[row], names[matrix], *along, *across, width, terms, kind)
            if key not in self.products:
                name = self.emit.lasting(f"{names[row]}_by_{names[matrix]}")
                self.products[key] = Product(name, names[row], names[matrix], along[0], across[0], across[2], across[1],
                                             terms, width, kind.c, kind.numpy.itemsize, of_row[1].c, of_matrix[1].c)
            return stored(self.products[key].name, kind, (width,), cheap=True, fresh=True)
        return None

    def assigned_product(self, loop: nodes.For, steps: ForRange, after: frozenset[str]) -> bool:
        """Write a loop that assigns the items of a product to an array's, or adds them; return False of others."""
        assigned = _as_items(loop)
        if assigned is None or self.probe is not None or liveness.assigned((loop,)) & after or not _from_zero(steps):
            return False
        name, value, added = assigned
        array = self.emit.frame.variables.get(name)
        product = self.product_over(steps, loop.target, value)
        if product is None or not isinstance(array, Array) or not array.storage or len(array.shape) != 1 \
                or array.size < product.size or (added and array.type != product.type):
            return False
        if array.size != product.size and self.emit.is_dealt(array.size):
            raise Serial
        part = replace(array, shape=product.shape)
        whole = elementwise(self.emit, lambda a, b: scalars.binary("+", a, b), part, product) if added else product
        self.emit.copy(part, whole)
        return True


def _as_items(loop: nodes.For) -> tuple[str, nodes.Expression, bool] | None:
    """Return the array whose items a loop assigns to or adds to, and an item's value; None of other loops.

    ``out[i] = value``; ``s = 0.0``, a loop of ``s += value``, ``out[i] = s``; a loop of ``out[i] += value``.
    """
    if loop.orelse or not isinstance(loop.target, nodes.Local):
        return None
    here = loop.target
    match loop.body:
        case (nodes.Assign((nodes.Index(nodes.Local(name), (place,)),), value),) if place == here:
            return name, value, False
        case (nodes.Assign((nodes.Local(total),), nodes.Literal(start)),
              nodes.For(inner, iterable, (nodes.Augment(nodes.Local(taken), "+", value),), ()),
              nodes.Assign((nodes.Index(nodes.Local(name), (place,)),), nodes.Local(kept))) \
                if place == here and total == taken == kept and start == 0:
            return name, _summed(value, inner, iterable), False
        case (nodes.For(inner, iterable, (nodes.Augment(nodes.Index(nodes.Local(name), (place,)), "+", value),), ()),) \
                if place == here:
            return name, _summed(value, inner, iterable), True
    return None


def _summed(value: nodes.Expression, target: nodes.Expression, iterable: nodes.Expression) -> nodes.Expression:
    return nodes.Call(nodes.Library("sum"), (nodes.Each(value, target, iterable, ()),))


def _from_zero(steps: ForRange) -> bool:
    if steps.kind != "range" or len(steps.items) > 2:
        return False
    return len(steps.items) == 1 or (steps.items[0].known and steps.items[0].value == 0)
