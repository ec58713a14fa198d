"""Time tiling on three axes: the stencils of a loop that share a pass over memory, and the kernels of these passes.

A pass costs what it moves, and more than that the more it does at once, since near the rim of a tile all is computed
twice and registers are few. How much more was measured; the cheapest way to part a loop's stencils is looked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from vispark.translate.codegen.scalar.interface import SHARED_LIMIT, KernelOutput, KernelParameter, ResultStructure
from vispark.translate.ir.nodes import Definition
from vispark.translate.ir.source_text import at_definition
from vispark.translate.stencils.cell import Made
from vispark.translate.stencils.chain import own_names
from vispark.translate.stencils.chaining import ChainPart
from vispark.translate.stencils.frame import WARP, Carried, Rims, Tile, TimeSteps, carried
from vispark.translate.stencils.kernel import OPTIONS, StencilKernel, specialised
from vispark.translate.stencils.time_tiled import fused, shared_bytes, why_apart

#: The most stencils at once, by the number of fields that they go through.
MOST_STEPS = {1: 3, 2: 2}
#: The warps of a block, the rows of each and the buffers of outer rows, by the number of fields: the first that the
#: shared memory holds. That of an A100, 163 KiB, holds the first of all.
_STEP_WARPS = {1: ((12, 3, 3), (8, 3, 2), (6, 3, 2), (6, 2, 2)), 2: ((10, 2, 2), (6, 2, 2))}
_STEP_CHUNK = 128
#: How much more time than its bytes a pass takes, by the stencils that it does: as steps of heat came to on an H200.
_SLOWER = {1: 1.1, 2: 1.47, 3: 1.58}


@dataclass(frozen=True)
class Surroundings:
    """Surroundings of the computed cells: each field's boundary rules and the widths of the ghost cells.

    Attributes
    ----------
    rims : tuple of (str, Rims)
        How each field continues beyond the grid, below and above z, y and x: "periodic", "mirrored", or "kept" where
        cells outside have values of their own, which stay.
    ghosts : tuple of int
        The width of the ghost cells along each axis.
    """

    rims: tuple[tuple[str, Rims], ...]
    ghosts: tuple[int, ...]


def stepped(parts: Sequence[ChainPart], around: Surroundings,
            shared_limit: int = SHARED_LIMIT) -> tuple[tuple[int, ...], float]:
    """Partition a sequence of stencils into passes; return the number of stencils in each, and the estimated memory
    traffic of all, in bytes a cell.

    A thread block can have ``shared_limit`` bytes of shared memory.

    Raises
    ------
    TranslationError
        As :func:`~vispark.translate.specialise_stencil`.
    """
    cells = tuple(specialised(part.function, part.fields, part.args, 3, None) for part in parts)
    return _stepped(cells, around, shared_limit)


def why_not_stepped(parts: Sequence[ChainPart], around: Surroundings, shared_limit: int = SHARED_LIMIT) -> str:
    """Return the reason why some stencils do not share one pass; empty if they can. Raises as :func:`stepped`."""
    return _why_apart([specialised(part.function, part.fields, part.args, 3, None) for part in parts], around,
                      shared_limit)


def specialise_steps(parts: Sequence[ChainPart], around: Surroundings,
                     shared_limit: int = SHARED_LIMIT) -> StencilKernel:
    """Return the kernel that runs some stencils one after the other in one pass over memory, on a grid of three axes.

    It gives, bit for bit, what they give one by one, each with the ghost cells of what it reads filled anew.

    Parameters
    ----------
    parts : sequence of ChainPart
        The stencils. Of the kernel's parameters, those that are no fields and no region are theirs, in their order;
        where all of them are the same one, once.
    around : Around
        How fields continue.
    shared_limit : int
        The bytes of shared memory that a thread block can have where it runs.

    Raises
    ------
    TranslationError
        If they cannot be one pass.
    """
    cells = tuple(specialised(part.function, part.fields, part.args, 3, None) for part in parts)
    definitions = tuple(part.function.definition for part in parts)
    alike = all(part is parts[0] for part in parts)
    return _kernel(definitions, cells, around, alike, shared_limit)


@functools.lru_cache(maxsize=64)
def _stepped(cells: tuple[Made, ...], around: Surroundings, shared_limit: int) -> tuple[tuple[int, ...], float]:
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for end in range(1, len(cells) + 1):
        options = []
        for count in range(1, min(end, max(MOST_STEPS.values())) + 1):
            several = cells[end - count:end]
            if count == 1 or not _why_apart(several, around, shared_limit):
                before, counts = best[end - count]
                options.append((before + _moved(several, around) * _SLOWER[count], (*counts, count)))
        best.append(min(options))
    return best[-1][1], best[-1][0]


def _moved(parts: Sequence[Made], around: Surroundings) -> float:
    """Return the bytes a cell that a pass reads and writes."""
    cells = [each.cell for each in parts]
    if len(cells) == 1:
        return sum(each.itemsize for each in cells[0].both)
    return sum(each.itemsize * (each.loaded + bool(each.out)) for each in carried(cells, dict(around.rims)))


def _why_apart(parts: Sequence[Made], around: Surroundings, shared_limit: int) -> str:
    if any(each.structure.kind == "tuple" for each in parts) or len({each.structure.kind for each in parts}) > 1:
        return "some of them give fields by name, and some do not"
    cells = [each.cell for each in parts]
    reason = why_apart(cells, dict(around.rims))
    if reason:
        return reason
    most = MOST_STEPS[len({each.field for cell in cells for each in cell.both})]
    if len(parts) > most:
        return f"of so many fields at most {most} steps are done at once"
    if len(parts) > min(around.ghosts):
        return "together they read further than there are ghost cells"
    if _how(carried(cells, dict(around.rims)), len(parts), around, shared_limit) is None:
        return (f"together they need more than the {shared_limit:,} bytes of shared memory that a thread block can "
                "have here")
    return ""


def _how(fields: Sequence[Carried], steps: int, around: Surroundings, shared_limit: int) -> TimeSteps | None:
    """Return the tiling of some time steps, if there is enough shared memory; else None."""
    rims = dict(around.rims)
    schedules = (TimeSteps(steps, warps, rows, _STEP_CHUNK, tuple((each.field, rims[each.field]) for each in fields),
                           buffers)
                 for warps, rows, buffers in _STEP_WARPS[len(fields)])
    return next((how for how in schedules if shared_bytes(fields, how) <= shared_limit), None)


@functools.lru_cache(maxsize=512)
def _kernel(definitions: tuple[Definition, ...], parts: tuple[Made, ...], around: Surroundings, alike: bool,
            shared_limit: int) -> StencilKernel:
    reason, steps = _why_apart(parts, around, shared_limit), len(parts)
    if reason:
        names = ", ".join(dict.fromkeys(definition.name for definition in definitions))
        raise at_definition(definitions[0], f"the steps of {names} cannot be done at once: {reason}")
    cells, text = ([parts[0].cell] * steps, parts[0].cell.text) if alike else own_names([each.cell for each in parts])
    fields = carried(cells, dict(around.rims))
    how = _how(fields, steps, around, shared_limit)
    assert how is not None
    name = f"{definitions[0].name}_{steps}_steps" if alike else \
        "_then_".join(dict.fromkeys(definition.name for definition in definitions)) + f"_{steps}"
    source = fused(cells, text, name, how)
    tile = Tile.of(fields[0].itemsize, how)
    halo = ((steps, steps),) * 3
    dtypes = {output.name: output.dtype for each in parts for output in each.outputs}
    read = dict(pair for each in parts for pair in each.dtypes)
    loaded = tuple(each.field for each in fields if each.loaded)
    outputs = tuple(KernelOutput(each.field, dtypes[each.field], ()) for each in fields if each.out)
    parameters = (*(KernelParameter("input", field, 0, read[field], (), True) for field in loaded),
                  *(KernelParameter("output", each.name, 0, each.dtype, (), True) for each in outputs),
                  KernelParameter("region", dtype=""),
                  *(parameter for each in (parts[:1] if alike else parts) for parameter in each.parameters))
    return StencilKernel(
        source, name, OPTIONS, loaded, outputs, ResultStructure(parts[0].structure.kind), parameters, halo,
        (WARP, how.warps, 1), (tile.inner[0] - tile.lanes + 1, tile.inner[1], how.chunk), 2,
        shared_bytes(fields, how), steps,
        (halo,) * len(loaded))
