"""Which stencils of a loop are done in one pass over memory: several of a step, or several steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_worker.protocol.messages import Signature
from vispark.grid.boundary import number_for
from vispark.grid.description import FUNCTION, NUMBER, Description, Edge
from vispark.grid.stencils import CellMap
from vispark.translate import Beyond, Part, parted, specialise_chain

#: Functions with what blocks look like before each.
Maps = Sequence[tuple[CellMap, Signature]]

#: A pass of several steps has at most so many stencils.
_MOST_STENCILS = 8


def passes(maps: Maps, description: Description, most: int) -> tuple[Maps, Maps, int]:
    """The passes of a step; and those of several steps, and how many these are, or nothing and 1.

    Parameters
    ----------
    maps : sequence of (CellMap, Signature)
        The stencils of a step, each with what it finds.
    description : Description
        The grid.
    most : int
        The most steps that may be done at once.
    """
    if description.ndim == len("yx"):
        beyond = _beyond(maps, description)
        return _chained(maps, beyond, most) if beyond is not None else (maps, (), 1)
    if len(maps) == 1 and most > 1:
        mapped, signature = maps[0]
        fused = mapped.at_once(signature, description)
        if fused is not None and fused.kernel.steps <= most:
            return maps, ((fused, signature),), fused.kernel.steps
    return maps, (), 1


def _chained(maps: Maps, beyond: Beyond, most: int) -> tuple[Maps, Maps, int]:
    """The cheapest passes, by what they are estimated to move for a step."""
    parts = [_part(*each) for each in maps]
    counts, least = parted(parts, beyond, dims=2)
    several: tuple[int, ...] = ()
    stride = 1
    for steps in range(2, min(most, _MOST_STENCILS // len(parts)) + 1):
        found, cost = parted(parts * steps, beyond, dims=2)
        if cost / steps < least:
            least, several, stride = cost / steps, found, steps
    return _joined(maps, parts, counts, beyond), _joined(list(maps) * stride, parts * stride, several, beyond), stride


def _joined(maps: Maps, parts: Sequence[Part], counts: Sequence[int], beyond: Beyond) -> Maps:
    """The passes that take so many stencils each."""
    found, at = [], 0
    for count in counts:
        several = [mapped for mapped, _ in maps[at:at + count]]
        found.append((several[0] if count == 1 else _chain(several, parts[at:at + count], beyond), maps[at][1]))
        at += count
    return found


def _chain(several: Sequence[CellMap], parts: Sequence[Part], beyond: Beyond) -> CellMap:
    """Some stencils as one."""
    kernel = specialise_chain(parts, beyond, dims=2)
    given = [origin for each in several for parameter, origin in zip(each.kernel.parameters, each.origins, strict=True)
             if parameter.kind in ("argument", "capture")]
    names = [(name, len(list(group))) for name, group in
             itertools.groupby(each.label.removeprefix("vmap ") for each in several)]
    label = "vmap " + ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names)
    return replace(several[0], label=label, kernel=kernel,
                   origins=(None,) * (len(kernel.parameters) - len(given)) + tuple(given),
                   settled=frozenset().union(*(each.settled for each in several)))


def _part(mapped: CellMap, signature: Signature) -> Part:
    return Part(mapped.spec.function, mapped.fields(signature), mapped.spec.values)


def _beyond(maps: Maps, description: Description) -> Beyond | None:
    """How the fields continue; None where a function of the position says so, or a number has no name in C++."""
    types: dict[str, str] = {}
    for mapped, signature in maps:
        types |= {each.name: each.dtype for each in mapped.fields(signature)}
        types |= {each.name: each.dtype for each in mapped.kernel.outputs}
    sides = []
    for name, dtype in types.items():
        below_y, above_y, below_x, above_x = (_side(edge, name, dtype) for edge in description.edges_of(name))
        if below_y is None or above_y is None or below_x is None or above_x is None:
            return None
        sides.append((name, (below_y, above_y, below_x, above_x)))
    return Beyond(tuple(sides), description.ghosts)


def _side(edge: Edge, name: str, dtype: str) -> str | None:
    """A rule, or a number in C++."""
    if edge.rule == FUNCTION:
        return None
    if edge.rule != NUMBER:
        return edge.rule
    number = np.frombuffer(number_for(edge, dtype, f"field {name!r}" if name else "the grid"), dtype)[0]
    if number.dtype.kind == "f" and number.itemsize >= np.float32().itemsize and np.isfinite(number):
        return float(number).hex() + ("f" if number.dtype.itemsize == np.float32().itemsize else "")
    if number.dtype.kind in "iu" and abs(int(number)) < 2**31:
        return str(int(number))
    return None
