"""Chaining of a loop's stencils into passes over memory, and the kernels of these passes.

A pass costs what it moves, or what it computes where that takes longer. Done together, stencils pass on what they make
in registers, and nothing of it is written that is made anew behind them; but near the rim of a strip of cells all is
computed twice, and registers are few. The cheapest way to part a loop's stencils is looked for, by estimates of these.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.translate.codegen.scalar.interface import ElementField, KernelOutput, KernelParameter, ResultStructure
from vispark.translate.codegen.scalar.reciprocals import COMMON_QUOTIENT
from vispark.translate.ir.nodes import Definition, Function
from vispark.translate.ir.source_text import at_definition
from vispark.translate.stencils import chain as stencil_chain
from vispark.translate.stencils.cell import Made
from vispark.translate.stencils.chain import Chain, Sides, linked, own_names
from vispark.translate.stencils.frame import ACCESS_BYTES, WARP, Cell
from vispark.translate.stencils.kernel import OPTIONS, StencilKernel, specialised
from vispark.translate.stencils.strips import Strips, strips

#: The most stencils of a chain, and the most registers for rows that are kept.
MOST_STAGES = 8
_MOST_KEPT = 152
_WARPS, _CHUNK = 4, 128
#: How many instructions a device issues while it moves a byte; those of operations; those around a stencil of a chain.
_ISSUED = 5.0
_WEIGHTS = {"/": 14.0, COMMON_QUOTIENT: 7.0, "(": 10.0}
_AROUND = 5.0
#: How much more time than its bytes a pass takes: what is read twice, and streams that drift apart.
_SLOWER = {"alone": 1.02, "chain": 1.14}


@dataclass(frozen=True)
class ChainPart:
    """A stencil of a loop, with the fields that it finds and the arguments that it is given."""

    function: Function
    fields: tuple[ElementField, ...]
    args: tuple[Any, ...]


@dataclass(frozen=True)
class ChainSurroundings:
    """Surroundings of a chain's cells: each field's boundary rules for each side, and the widths of the ghost cells.

    Attributes
    ----------
    sides : tuple of (str, Sides)
        How each field continues beyond the grid.
    ghosts : tuple of int
        The width of the ghost cells along each axis.
    """

    sides: tuple[tuple[str, Sides], ...]
    ghosts: tuple[int, ...]


def passes_of(parts: Sequence[ChainPart], beyond: ChainSurroundings, *, dims: int) -> tuple[tuple[int, ...], float]:
    """Partition a sequence of stencils into passes; return the number of stencils in each, and the estimated memory
    traffic of all, in bytes a cell.

    Raises
    ------
    TranslationError
        As :func:`~vispark.translate.specialise_stencil`.
    """
    cells = tuple(specialised(part.function, part.fields, part.args, dims, None) for part in parts)
    return _partition(cells, beyond)


def why_not_chained(parts: Sequence[ChainPart], beyond: ChainSurroundings, *, dims: int) -> str:
    """Return the reason why some stencils do not share one pass; empty if they can. Raises as :func:`passes_of`."""
    return why_apart([specialised(part.function, part.fields, part.args, dims, None) for part in parts], beyond)


def specialise_chain(parts: Sequence[ChainPart], beyond: ChainSurroundings, *, dims: int) -> StencilKernel:
    """Return the kernel that runs some stencils one after the other in one pass over memory.

    It gives, bit for bit, what they give one by one, each with the ghost cells of what it reads filled anew.

    Parameters
    ----------
    parts : sequence of ChainPart
        The stencils. Of the kernel's parameters, those that are no fields and no region are theirs, in their order.
    beyond : Beyond
        How fields continue.
    dims : int
        The grid's axes.

    Raises
    ------
    TranslationError
        If they cannot be one pass.
    """
    cells = tuple(specialised(part.function, part.fields, part.args, dims, None) for part in parts)
    return _kernel(tuple(part.function.definition for part in parts), cells, beyond)


@functools.lru_cache(maxsize=64)
def _partition(cells: tuple[Made, ...], beyond: ChainSurroundings) -> tuple[tuple[int, ...], float]:
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for end in range(1, len(cells) + 1):
        options = []
        for count in range(1, min(end, MOST_STAGES) + 1):
            cost = _cost(cells[end - count:end], beyond)
            if cost is not None:
                before, counts = best[end - count]
                options.append((before + cost, (*counts, count)))
        best.append(min(options))
    return best[-1][1], best[-1][0]


def _cost(parts: tuple[Made, ...], beyond: ChainSurroundings) -> float | None:
    """Return the cost of a pass: its memory traffic, or what it could move while it computes, in bytes a cell; None if
    it is impossible.
    """
    cells = [each.cell for each in parts]
    computed = sum(_instructions(cell) for cell in cells)
    if len(cells) == 1:
        moved = sum([each.itemsize for each in cells[0].reads] + [each.itemsize for each in cells[0].writes])
        return max(moved * _SLOWER["alone"], computed / _ISSUED)
    if why_apart(parts, beyond):
        return None
    chain, how = _chain(parts)
    again = WARP * how.lanes / how.inner(chain) * (1 + 2 * max(each.needed[0][0] for each in chain.given) / how.chunk)
    moved = sum(each.itemsize for each in (*chain.given, *chain.stored))
    issued = (computed + _AROUND * len(cells)) * again / _ISSUED
    # Where both take about as long, neither hides the other altogether.
    return float(np.hypot((moved * _SLOWER["chain"]) ** 2, issued**2) ** 0.5)


def why_apart(parts: Sequence[Made], beyond: ChainSurroundings) -> str:
    """Return the reason why some stencils do not share one pass; empty if they can."""
    sides, cells = dict(beyond.sides), [each.cell for each in parts]
    if any(each.structure.kind == "tuple" for each in parts) or len({each.structure.kind for each in parts}) > 1:
        return "some of them give fields by name, and some do not"
    reason = stencil_chain.why_not_chained(cells, sides)
    if reason:
        return reason
    chain, how = _chain(parts)
    if any(width > most for each in chain.given
           for needed, most in zip(each.needed, beyond.ghosts, strict=True) for width in needed):
        return "together they read further than there are ghost cells"
    if chain.kept * how.lanes * cells[0].writes[0].itemsize // 4 > _MOST_KEPT:
        return "together they keep more rows than there are registers for"
    return ""


def _chain(parts: Sequence[Made]) -> tuple[Chain, Strips]:
    """Return the chain, and how threads share its work."""
    cells = [each.cell for each in parts]
    lanes = ACCESS_BYTES // cells[0].writes[0].itemsize
    return linked(cells, _ahead(len(cells))), Strips(lanes, _WARPS, _CHUNK)


def _ahead(count: int) -> int:
    """Return the number of rows to load ahead, for ``count`` stencils."""
    return 2 if count > 2 else 1


def _instructions(cell: Cell) -> float:
    """Estimate the number of instructions for a cell."""
    body = cell.text[cell.text.rindex("{"):] if "{" in cell.text else cell.text
    text = re.sub(r"/ (?:\(float\))?[0-9.]+f?\b", "* 1", body)
    return sum(_WEIGHTS.get(token, 1.0) for token in re.findall(rf"{COMMON_QUOTIENT}|[-+*/<>?]|\w\(", text))


@functools.lru_cache(maxsize=128)
def _kernel(definitions: tuple[Definition, ...], parts: tuple[Made, ...], beyond: ChainSurroundings) -> StencilKernel:
    reason = why_apart(parts, beyond)
    if reason:
        names = ", ".join(definition.name for definition in definitions)
        raise at_definition(definitions[0], f"{names} cannot be done in one pass: {reason}")
    _, how = _chain(parts)
    cells, text = own_names([each.cell for each in parts])
    chain = linked(cells, _ahead(len(cells)))
    name = "_then_".join(dict.fromkeys(definition.name for definition in definitions)) + f"_{len(parts)}"
    dtypes = dict(pair for each in parts for pair in each.dtypes)
    outputs = tuple(KernelOutput(each.field, _output(parts, each.field).dtype, ()) for each in chain.stored)
    parameters = (*(KernelParameter("input", each.field, 0, dtypes[each.field], (), True) for each in chain.given),
                  *(KernelParameter("output", each.name, 0, each.dtype, (), True) for each in outputs),
                  KernelParameter("region", dtype=""), *(parameter for each in parts for parameter in each.parameters))
    reach = tuple(tuple(each.needed) for each in chain.given)
    halo = tuple((max(one[axis][0] for one in reach), max(one[axis][1] for one in reach)) for axis in range(2))
    return StencilKernel(
        strips(chain, text, name, how, dict(beyond.sides)), name, OPTIONS, tuple(each.field for each in chain.given),
        outputs, ResultStructure(parts[0].structure.kind), parameters, halo, (WARP, how.warps, 1),
        (how.warps * how.inner(chain) - how.lanes + 1, how.chunk, 1), 1, reach=reach)


def _output(cell: Sequence[Made], field: str) -> KernelOutput:
    return next(output for each in cell for output in each.outputs if output.name == field)
