"""Routes of ghost-cell exchanges: the copies that fill ghost cells, computed once for a domain.

The memory of fields changes with every step, but what is copied from where to where within it does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_worker.device.base import Device
from gpu_worker.device.memory.grid.boxes import Triple
from gpu_worker.device.memory.grid.ghosts import Copied, Rules
from gpu_worker.device.memory.grid.layout import Copy, routed
from gpu_worker.device.memory.grid.patches import Cells, Domain

#: Of a field that is exchanged: how far below and above, how the grid continues, and the bytes of a cell.
Widths = tuple[Triple, Triple, Rules, int]


@dataclass(frozen=True, eq=False)
class Route:
    """Copies that one launch makes.

    Attributes
    ----------
    entries, works : numpy.ndarray
        As :func:`~gpu_worker.device.memory.grid.layout.tables` gives them, with addresses counted from the start of
        buffers.
    sources, targets : numpy.ndarray
        Of each entry, the numbers of its buffers: those of a field's patches, one field behind the other.
    """

    entries: np.ndarray
    works: np.ndarray
    sources: np.ndarray
    targets: np.ndarray

    def entries_at(self, addresses: np.ndarray) -> np.ndarray:
        """Return the entries for buffers that lie at some addresses."""
        entries = self.entries.copy()
        entries["source"] += addresses[self.sources]
        entries["target"] += addresses[self.targets]
        return entries


@dataclass(frozen=True, eq=False)
class Across:
    """Transfers from one device to others: a single launch for peers whose memory it reaches, and numbered pieces of
    fields, staged, for each of the others.
    """

    giver: Device
    takers: tuple[Device, ...]
    direct: Route | None
    staged: tuple[tuple[Device, tuple[tuple[int, Copied], ...]], ...]


@dataclass(frozen=True, eq=False)
class Routes:
    """Copies of an exchange of some fields.

    Attributes
    ----------
    local : tuple of (Device, Route)
        Within devices.
    across : tuple of Across
        From device to device.
    crossing : tuple of Copied
        All that comes from other devices.
    """

    local: tuple[tuple[Device, Route], ...]
    across: tuple[Across, ...]
    crossing: tuple[Copied, ...]


def routes(domain: Domain, fields: tuple[Widths, ...]) -> Routes:
    """Return the copies of an exchange of some fields, computed once for a domain."""
    return domain.once(("routes", fields), lambda: _routes(domain, fields))


def _routes(domain: Domain, fields: Sequence[Widths]) -> Routes:
    local: dict[Device, list[tuple[int, Copied]]] = defaultdict(list)
    across: dict[Device, dict[Device, list[tuple[int, Copied]]]] = defaultdict(lambda: defaultdict(list))
    crossing: list[Copied] = []
    for number, (below, above, rules, _) in enumerate(fields):
        for piece in domain.pieces(below, above, rules):
            if isinstance(piece, Copied):
                giver, taker = (domain.patches[place].device for place in (piece.source, piece.target))
                if giver is taker:
                    local[giver].append((number, piece))
                else:
                    across[giver][taker].append((number, piece))
                    crossing.append(piece)

    def route(pieces: Sequence[tuple[int, Copied]]) -> Route:
        return _route(domain, [each[-1] for each in fields], pieces)

    return Routes(tuple((device, route(pieces)) for device, pieces in local.items()),
                  tuple(_across(giver, takers, route) for giver, takers in across.items()), tuple(crossing))


def _across(giver: Device, takers: dict[Device, list[tuple[int, Copied]]],
            route: Callable[[Sequence[tuple[int, Copied]]], Route]) -> Across:
    reached = {taker: giver.reaches(taker) for taker in takers}
    direct = [piece for taker, pieces in takers.items() if reached[taker] for piece in pieces]
    return Across(giver, tuple(takers), route(direct) if direct else None,
                  tuple((taker, tuple(pieces)) for taker, pieces in takers.items() if not reached[taker]))


def _route(domain: Domain, sizes: Sequence[int], pieces: Sequence[tuple[int, Copied]]) -> Route:
    patches = len(domain.patches)
    entries, works, parts = routed([copy_of(domain, piece, sizes[number]) for number, piece in pieces])
    places = np.array([(number * patches + piece.source, number * patches + piece.target) for number, piece in pieces])
    return Route(entries, works, places[parts, 0], places[parts, 1])


def copy_of(domain: Domain, piece: Copied, size: int, cells: Cells | None = None) -> Copy:
    """Return the copy of a piece: of cells, or with addresses counted from the start of their buffers."""
    source, target = domain.patches[piece.source].layout, domain.patches[piece.target].layout
    strides = tuple(stride * step for stride, step in zip(source.strides, piece.steps, strict=True))
    start, end = (0, 0) if cells is None else (cells.buffers[place].address for place in (piece.source, piece.target))
    return Copy(start + source.element(piece.start) * size, end + target.element(piece.to.low) * size, strides,
                target.strides, piece.to.shape, size)
