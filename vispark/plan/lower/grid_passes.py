"""Partitioning of a loop's stencils into passes over memory: several stencils of a step, or several steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpu_worker.protocol.messages import Signature
from vispark.data.grid.boundary import number_for
from vispark.data.grid.spec import FUNCTION, MIRRORED, NUMBER, PERIODIC, Edge, GridSpec
from vispark.plan.lower.grid_stencils import CellMap
from vispark.translate import (
    ChainPart,
    ChainSurroundings,
    StencilKernel,
    Surroundings,
    passes_of,
    specialise_chain,
    specialise_steps,
    stepped,
    why_not_chained,
    why_not_stepped,
)
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT
from vispark.translate.stencils.frame import Rims

#: Functions with what blocks look like before each.
Maps = Sequence[tuple[CellMap, Signature]]

#: A pass of several steps has at most so many stencils.
_MOST_STENCILS = 8


@dataclass(frozen=True)
class PassPlans:
    """Strategy that turns a grid's stencils into passes: the partition, the kernel of a pass, and why stencils stay
    apart.
    """

    passes_of: Callable[[Sequence[ChainPart]], tuple[tuple[int, ...], float]]
    kernel: Callable[[Sequence[ChainPart]], StencilKernel]
    reason: Callable[[Sequence[ChainPart]], str]


def passes(maps: Maps, description: GridSpec, most: int, shared_limit: int = SHARED_LIMIT) -> tuple[Maps, Maps, int]:
    """Return the passes of a step; and the passes of several steps with their number, or none and 1.

    They are the cheapest ones, by what they are estimated to move for a step.

    Parameters
    ----------
    maps : sequence of (CellMap, Signature)
        The stencils of a step, each with what it finds.
    description : GridSpec
        The grid.
    most : int
        The most steps that may be done at once.
    shared_limit : int
        The bytes of shared memory that a thread block can have where they run.
    """
    ways = _pass_plans(maps, description, shared_limit)
    if isinstance(ways, str):
        return maps, (), 1
    parts = [_part(*each) for each in maps]
    counts, least = ways.passes_of(parts)
    several: tuple[int, ...] = ()
    stride = 1
    for steps in range(2, min(most, _MOST_STENCILS // len(parts)) + 1):
        chain, cost = ways.passes_of(parts * steps)
        if cost / steps < least:
            least, several, stride = cost / steps, chain, steps
    return _joined(maps, parts, counts, ways), _joined(list(maps) * stride, parts * stride, several, ways), stride


def why_apart(maps: Maps, description: GridSpec, most: int, shared_limit: int = SHARED_LIMIT) -> str:
    """Return the reason why stencils of the loop are passes of their own; empty if all are joined as far as possible.

    Parameters as for :func:`passes`.
    """
    ways = _pass_plans(maps, description, shared_limit)
    if isinstance(ways, str):
        return ways
    parts = [_part(*each) for each in maps]
    if len(parts) == 1 and most == 1:
        return "something is asked for after each step"
    neighbours = zip(parts, parts[1:] + parts[:1] * (most > 1), strict=False)
    reasons = dict.fromkeys(filter(None, map(ways.reason, neighbours)))
    return "; ".join(reasons)


def _pass_plans(maps: Maps, description: GridSpec, shared_limit: int) -> PassPlans | str:
    """Return the strategy that partitions a grid's stencils into passes, or why none can be joined."""
    if description.ndim == len("yx"):
        beyond = _boundary_rules(maps, description)
        if isinstance(beyond, str):
            return beyond
        return PassPlans(partial(passes_of, beyond=beyond, dims=2), partial(specialise_chain, beyond=beyond, dims=2),
                         partial(why_not_chained, beyond=beyond, dims=2))
    if description.ndim == len("zyx"):
        around = Surroundings(tuple((name, _rims(description, name)) for name in _types(maps)), description.ghosts)
        return PassPlans(partial(stepped, around=around, shared_limit=shared_limit),
                         partial(specialise_steps, around=around, shared_limit=shared_limit),
                         partial(why_not_stepped, around=around, shared_limit=shared_limit))
    return "the grid has 1 axis"


def _joined(maps: Maps, parts: Sequence[ChainPart], counts: Sequence[int], ways: PassPlans) -> Maps:
    """Return the passes, given the number of stencils in each."""
    joined, at = [], 0
    for count in counts:
        several = [mapped for mapped, _ in maps[at:at + count]]
        joined.append((several[0] if count == 1 else _pass(several, parts[at:at + count], ways), maps[at][1]))
        at += count
    return joined


def _pass(several: Sequence[CellMap], parts: Sequence[ChainPart], ways: PassPlans) -> CellMap:
    """Return one stencil for several that share a pass."""
    kernel = ways.kernel(parts)
    origins = [origin for each in several
               for parameter, origin in zip(each.kernel.parameters, each.origins, strict=True)
               if parameter.kind in ("argument", "capture")]
    arguments = sum(parameter.kind in ("argument", "capture") for parameter in kernel.parameters)
    names = [(name, len(list(group))) for name, group in
             itertools.groupby(each.label.removeprefix("vmap ") for each in several)]
    label = "vmap " + ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names)
    # Steps of one stencil have its arguments in common.
    return replace(several[0], label=label, kernel=kernel,
                   origins=(None,) * (len(kernel.parameters) - arguments) + tuple(origins[:arguments]),
                   settled=frozenset().union(*(each.settled for each in several)))


def _part(mapped: CellMap, signature: Signature) -> ChainPart:
    return ChainPart(mapped.spec.function, mapped.fields(signature), mapped.spec.values)


def _types(maps: Maps) -> dict[str, str]:
    """Return the dtypes of the fields that some functions read or write."""
    types: dict[str, str] = {}
    for mapped, signature in maps:
        types |= {each.name: each.dtype for each in mapped.fields(signature)}
        types |= {each.name: each.dtype for each in mapped.kernel.outputs}
    return types


def _boundary_rules(maps: Maps, description: GridSpec) -> ChainSurroundings | str:
    """Return the boundary rules of the fields, or why no kernel can apply them: a function of the position, or a number
    without a C++ name.
    """
    sides = []
    for name, dtype in _types(maps).items():
        below_y, above_y, below_x, above_x = (_side(edge, name, dtype) for edge in description.edges_of(name))
        if below_y is None or above_y is None or below_x is None or above_x is None:
            return "a function of the position, or a number that has no name in C++, is the boundary"
        sides.append((name, (below_y, above_y, below_x, above_x)))
    return ChainSurroundings(tuple(sides), description.ghosts)


def _rims(description: GridSpec, name: str) -> Rims:
    """Return the rules by which a field's boundary values continue from one step to the next."""
    below_z, above_z, below_y, above_y, below_x, above_x = (
        edge.rule if edge.rule in (PERIODIC, MIRRORED) else "kept" for edge in description.edges_of(name))
    return below_z, above_z, below_y, above_y, below_x, above_x


def _side(edge: Edge, name: str, dtype: str) -> str | None:
    """Return a rule, or a number in C++."""
    if edge.rule == FUNCTION:
        return None
    if edge.rule != NUMBER:
        return edge.rule
    number = np.frombuffer(number_for(edge, dtype, name), dtype)[0]
    if number.dtype.kind == "f" and number.itemsize >= np.float32().itemsize and np.isfinite(number):
        return float(number).hex() + ("f" if number.dtype.itemsize == np.float32().itemsize else "")
    if number.dtype.kind in "iu" and abs(int(number)) < 2**31:
        return str(int(number))
    return None
