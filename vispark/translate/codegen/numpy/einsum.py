"""``np.einsum``: sums of products by their subscripts."""

from __future__ import annotations

import re

from vispark.translate.codegen.dispatch import expression, lowers_call
from vispark.translate.codegen.elementwise import astype, elementwise
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.rearranging import reshape_method
from vispark.translate.codegen.operands import plain
from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.values import Array, Number, Value, describe, reindexed
from vispark.translate.language.registry import register

_SUBSCRIPTS = re.compile(r"([a-zA-Z]*(?:,[a-zA-Z]*)*)(->[a-zA-Z]*)?")


# Its subscripts are written out: the call is lowered as it is written, and not by values.
register("numpy.einsum", "*operands out! optimize!")


@lowers_call("numpy.einsum")
def einsum_call(emit: Emitter, name: str, node: nodes.Call) -> Value:
    """Return a call of ``np.einsum``."""
    first = node.arguments[0] if node.arguments else None
    if not isinstance(first, nodes.Literal) or not isinstance(first.value, str):
        raise Refusal("np.einsum's subscripts are written out, as in np.einsum('ij,j->i', m, p)")
    return einsum(emit, first.value, tuple(expression(emit, argument) for argument in node.arguments[1:]))


def einsum(emit: Emitter, subscripts: str, operands: tuple[Value, ...]) -> Value:
    """Return ``np.einsum(subscripts, *operands)``; a product with a matrix is one, as by ``@``."""
    arrays = [plain(operand) for operand in operands]
    inputs, output = _parsed(subscripts, len(arrays))
    extents = _extents(inputs, arrays)
    missing = [letter for letter in output if letter not in extents]
    if missing:
        raise Refusal(f"{subscripts!r}: {missing[0]} is in no operand")
    summed = [letter for letter in extents if letter not in output]
    letters = [*output, *summed]
    shape = tuple(extents[letter] for letter in letters)
    terms = arrays[0] if not letters else _spread(arrays[0], inputs[0], letters, shape)
    for letter_list, operand in zip(inputs[1:], arrays[1:], strict=True):
        terms = elementwise(emit, lambda a, b: scalars.ufunc("multiply", a, b), terms,
                            _spread(operand, letter_list, letters, shape) if letters else operand)
    return _summed(emit, terms, len(output)) if summed else terms


def _summed(emit: Emitter, terms: Array, kept: int) -> Value:
    """Return the sum over all axes but the first ones, of the terms' type."""
    shape = terms.shape[:kept]
    row = reshape_method(emit, terms, *map(literal, shape), literal(-1)) if len(terms.shape) > kept + 1 else terms
    total = call_library(emit, "numpy.sum", (row,), {"axis": literal(kept)})
    total = plain(total)
    return astype(total, terms.type) if isinstance(total, Array) else cast(total, terms.type)


def _parsed(subscripts: str, count: int) -> tuple[list[str], str]:
    """Return the letters of each operand, and of the result: without ->, the letters that occur once, in order."""
    match = _SUBSCRIPTS.fullmatch(subscripts.replace(" ", ""))
    if match is None:
        raise Refusal(f"{subscripts!r} is not supported; np.einsum takes letters, as in 'ij,j->i'")
    inputs = match[1].split(",")
    if len(inputs) != count:
        raise Refusal(f"{subscripts!r} is of {len(inputs)} operands, and {count} are given")
    output = "".join(sorted(letter for letter in set(match[1]) - {","} if match[1].count(letter) == 1)) \
        if match[2] is None else match[2][2:]
    if len(set(output)) < len(output):
        raise Refusal(f"{subscripts!r}: a letter stands twice in the result")
    return inputs, output


def _extents(inputs: list[str], operands: list[Number | Array]) -> dict[str, int]:
    """Return each letter's extent."""
    extents: dict[str, int] = {}
    for letters, operand in zip(inputs, operands, strict=True):
        shape = operand.shape if isinstance(operand, Array) else ()
        if len(letters) != len(shape):
            raise Refusal(f"{letters or 'no letter'!r} does not name the axes of {describe(operand)}")
        for letter, extent in zip(letters, shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise Refusal(f"{letter} is {extents[letter]} and {extent} long")
    return extents


def _spread(operand: Number | Array, named: str, letters: list[str], shape: tuple[int, ...]) -> Array:
    """Return an operand with an axis for each letter."""
    if isinstance(operand, Number):
        return Array(operand.type.strong, shape, lambda *indices: cast(operand, operand.type.strong).closed)
    places = [letters.index(letter) for letter in named]
    return reindexed(operand, shape, lambda *indices: tuple(indices[place] for place in places))
