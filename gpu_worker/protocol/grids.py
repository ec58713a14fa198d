"""Messages about grids: shapes, boundary rules, exchanges and loops.

Axes have the grid's own order and number, 1 to 3, the last one contiguous in memory. Cells are numbered over the whole
grid from 0; ghost cells outside of it have numbers below 0 or from the extent on. A block's position is its number in
the lattice of blocks, in C order.
"""

from __future__ import annotations

from gpu_worker.protocol.frozen import dataclass


@dataclass(frozen=True, slots=True)
class GridShape:
    """Shape of a grid: cells and blocks along each axis, and the width of the ghost cells on both sides of blocks.

    An axis is cut as :func:`numpy.array_split` cuts it: the first blocks are those that are one longer. ``ghosts`` says
    how many ghost cells there are in memory, at least as many as the halo has; left out, just as many.
    """

    shape: tuple[int, ...]
    splits: tuple[int, ...]
    halo: tuple[int, ...]
    ghosts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """Boundary rule of a field at one side of an axis.

    ``rule`` is "periodic" (at the axis's other end), "mirrored" (the cells before the side once more, in reverse: ghost
    cell -1 has what cell 0 has) or "given". Then ``values`` is the index of an array argument with the ghost cells'
    values, or -1, and every ghost cell has ``value``: one number of the field's dtype, little-endian.

    The array has the field's dtype and, along the side's own axis, as many cells as the grid's halo is wide, in
    ascending order; along the others, the grid's cells with the halo on both sides.

    Axes are continued one after the other, in order, each with what was continued before: a ghost cell outside along
    several has what the last of them gives it.
    """

    rule: str
    value: bytes
    values: int


@dataclass(frozen=True, slots=True)
class Halo:
    """Ghost cells of a field: their number below and above each axis, and the boundary rules.

    ``sides`` has two for each axis, below and above.
    """

    field: str
    below: tuple[int, ...]
    above: tuple[int, ...]
    sides: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class ExchangeStep:
    """Fill ghost cells of all blocks, edges and corners too. The values of a name do not change: ghosts are no part."""

    label: str
    halos: tuple[Halo, ...]


@dataclass(frozen=True, slots=True)
class StencilStep:
    """Compute every cell of the grid anew, by the launch of that index among the plan's stencils.

    It reads ghost cells as the last :class:`ExchangeStep` before it left them; those of its result hold nothing.
    """

    label: str
    launch: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One stencil of a loop, after the exchange that it needs; ``label`` is as in :class:`StencilStep`."""

    label: str
    halos: tuple[Halo, ...]
    launch: int


@dataclass(frozen=True, slots=True)
class IterateStep:
    """Do the phases in order, ``steps`` times.

    With ``until`` at or above 0, stop after a step whose number ``every`` divides and in which no cell of a field that
    the phases write changed by more than ``until``. With ``check`` above 0, look for NaN and infinities after each step
    whose number it divides, and after the last; the first one is the error ``NotFinite``. Steps are
    numbered from 1, after the ``done`` ones of requests before this one; where more came before, which makes no
    difference to which steps are asked about, the value in the slot ``counted`` says how many, for the error. With
    ``stride`` above 1, the phases ``together`` do so many steps at once, and are done instead wherever so many are left
    before the last step, before one that ``until`` compares, and up to one that ``check`` looks at.
    """

    label: str
    phases: tuple[Phase, ...]
    steps: int
    done: int
    until: float
    every: int
    check: int
    together: tuple[Phase, ...] = ()
    stride: int = 1
    counted: int = -1


@dataclass(frozen=True, slots=True)
class WindowStep:
    """Step that takes the cells of each block within a window of the grid: from, to (without), and the stride.

    Along each axis. The steps are 1 or more. What is left are plain blocks, some of which may have no cells.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class World:
    """The workers among which a plan exchanges ghost cells, and the place of this one among them.

    All of them run the plan with the same ``key``, which names a world of the session: a new one where it is new.
    Plans of one world are run in the order of their ``turn``, from 0 on; -1 where the client sends one at a time.
    Workers are named by their places (:func:`place_name`). With ``addresses``, one for each, they reach each other at
    these, by an exchange that was opened for the world (:class:`~gpu_worker.protocol.messages.OpenWorld`).
    """

    key: bytes
    rank: int
    workers: tuple[str, ...]
    turn: int = -1
    addresses: tuple[bytes, ...] = ()


def place_name(machine: str, runtime_dir: str) -> str:
    """Return the name of the worker in a runtime directory of the machine of that name."""
    return f"{machine}:{runtime_dir}"


@dataclass(frozen=True, slots=True)
class Iterated:
    """Outcome of a loop: its steps in this request, and the largest change of a cell in the last step compared, or -1.
    """

    steps: int
    change: float
