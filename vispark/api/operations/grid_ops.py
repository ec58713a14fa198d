"""Operations of a VRDD of a grid's blocks: halos, stencils and loops of stencils."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from gpu_worker.protocol.grids import Iterated
from vispark._utils.boundary import brief_errors
from vispark.api.rdds.eager import begin_part
from vispark.api.rdds.recorded_rdd import Recorded, RecordedRDD
from vispark.data.grid.selection import CellSelection
from vispark.data.grid.spec import GridSpec
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import Place, PlanError
from vispark.plan import ops
from vispark.plan.loop_call import LoopSpec, reaches_out, record_loop
from vispark.plan.lower.stages import FETCH
from vispark.plan.map_call import MapSpec
from vispark.runtime.driver.loop_pacing import EndedLoop, run_parts
from vispark.runtime.driver.progress import showing
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.session import Session


@brief_errors
@dataclass(frozen=True)
class Halos(Generic[Recorded]):
    """Extracted halos: the outermost cells of each block of a grid, to be sent to the neighbours; see
    :meth:`VRDD.halo_extract`.
    """

    blocks: Recorded

    def halo_shuffle(self) -> Recorded:
        """Exchange the halos, for this version of the grid.

        Returns
        -------
        VRDD
            The grid that they are of; :meth:`VRDD.halo_append` gives its blocks with their halos.
        """
        shuffle_halos(self.blocks)
        return self.blocks


def halo_extract(vrdd: Recorded) -> Halos[Recorded]:
    """Take the outermost cells of each block, for the neighbours' halos: faces, edges and corners.

    Returns
    -------
    Halos
        Whose ``halo_shuffle()`` exchanges them and gives this VRDD. Nothing is copied before.

    Raises
    ------
    PlanError
        If the records are known to be no blocks of a Grid; where they were not sent yet, at the action.

    See Also
    --------
    VRDD.iterate : the same for a whole loop in one call.

    Examples
    --------
    >>> import numpy as np
    >>> from vispark import Grid, stencil
    >>> @stencil
    ... def mean(u):
    ...     return (u[-1] + u[1]) / 2
    >>> blocks = Grid(6, splits=3, boundary="periodic").scatter(sc, np.arange(6.0)).cache("GPU")
    >>> blocks.halo_extract().halo_shuffle()                    # doctest: +ELLIPSIS
    VRDD[...]: ...
    >>> Grid.gather(blocks.halo_append().vmap(mean))
    array([3., 1., 2., 3., 4., 2.])
    """
    _check_for_a_grid(vrdd, "halo_extract")
    return Halos(vrdd)


def shuffle_halos(vrdd: RecordedRDD) -> None:
    """Exchange the halos of this version of the grid; see :meth:`halo_extract`.

    Examples
    --------
    >>> import numpy as np
    >>> from vispark import Grid
    >>> blocks = Grid(4, splits=2, halo=1, boundary="periodic").scatter(sc, np.arange(4.0)).cache("GPU")
    >>> blocks.shuffle_halos()
    >>> blocks.halo_append().count()
    2
    """
    _keep_something(vrdd)
    vrdd._shuffled = True


def halo_append(vrdd: Recorded) -> Recorded:
    """Return the blocks with their neighbours' cells around them, as stencils and ``exec`` need them.

    Pure: the VRDD it is called on stays as it is. May be left out: a stencil that is mapped over a grid whose halos
    were shuffled has them.

    Returns
    -------
    VRDD
        Of (BlockKey, block) in the cells' dtype; lazy. Functions and kernels see blocks that are longer by the halo's
        width at both ends of each axis; actions and :meth:`recv` give the blocks without.

    Raises
    ------
    PlanError
        If the halos of this version of the grid were not shuffled.

    Examples
    --------
    >>> import numpy as np
    >>> from vispark import Grid, stencil
    >>> blocks = Grid(4, splits=2, halo=1, boundary="periodic").scatter(sc, np.arange(4.0)).cache("GPU")
    >>> blocks.shuffle_halos()
    >>> @stencil
    ... def left(u):
    ...     return u[-1]
    >>> Grid.gather(blocks.halo_append().vmap(left))
    array([3., 0., 1., 2.])
    """
    if not vrdd._shuffled:
        raise PlanError("halo_append() needs the neighbours' cells of this version of the grid: call "
                        ".halo_extract().halo_shuffle() on it first", Place(operation="halo_append"))
    return vrdd._then(ops.HaloAppend())


def iterate(vrdd: Recorded, f: Callable[..., Any] | Sequence[tuple[Any, ...]], *arguments: Any, steps: int,
            until: float | None = None, every: int = 10, check: bool | int = False,
            progress: bool | None = None) -> Recorded:
    """Run an exchange and a stencil, or several of them, repeatedly, without leaving the workers.

    Parameters
    ----------
    f : callable or list of (callable, tuple)
        A stencil or a plain function of a cell; or the phases of a step, each with its arguments. Before a phase
        that reads neighbours, their cells are exchanged.
    *arguments
        Of the function, as for :meth:`vmap`.
    steps : int
        How many steps, at most.
    until : float, optional
        End after a step in which no cell of a field that is written changed by more. Where the change of a cell is
        NaN the loop goes on, with a warning; :attr:`iterated` has NaN for the change then.
    every : int
        After how many steps to see whether to end; 10 by default.
    check : bool or int
        Whether to look for NaN and infinities, or after how many steps to do so; True: after every 100th and at the
        end of each part of the loop. Of the cells that are not finite then, an error names the first in the order
        of the grid, with its block; with 1 that is one of those at which they began.
    progress : bool, optional
        Whether to show how far the loop is, in logs too. Left out: on a terminal and in a notebook, where it takes
        long, or as :func:`vispark.progress` says.

    Returns
    -------
    VRDD
        Computed by the first action that needs it, and kept from then on; :attr:`iterated` says how it ended.

    Raises
    ------
    PlanError
        If a parameter is none of these, or the VRDD is known to be none of a Grid's blocks; at the action, if it
        turns out to be none, a stencil reaches beyond the halo, or a step changes the fields' dtypes.
    NotFinite
        At the action, if a check finds a cell that is NaN or infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from vispark import Grid, stencil
    >>> @stencil
    ... def smooth(u):
    ...     return (u[-1] + 2 * u[0] + u[1]) / 4
    >>> blocks = Grid(6, splits=3, boundary="periodic").scatter(sc, np.arange(6.0)).cache("GPU")
    >>> level = blocks.iterate(smooth, steps=1000, until=1e-12)
    >>> Grid.gather(level).round(6)
    array([2.5, 2.5, 2.5, 2.5, 2.5, 2.5])
    >>> level.iterated.steps < 1000
    True
    """
    spec = record_loop(f, arguments, steps, until, every, check)
    if progress is not None and not isinstance(progress, bool):
        raise PlanError(f"progress={progress!r}; it is True, False, or None for terminals and notebooks alone",
                        Place(operation=spec.label))
    _check_for_a_grid(vrdd, spec.label)
    if not spec.steps:
        same = vrdd._then(ops.ToDevice())
        same._loop = EndedLoop(0, None)
        return same
    _keep_something(vrdd)
    looped = vrdd._then(ops.Iterate(spec))
    looped._progress = progress
    return looped


def described(vrdd: RecordedRDD) -> GridSpec | None:
    """Return the grid of the blocks, if it is known without asking for a block."""
    return next((content.layout.grid for content in _known(vrdd) if content.layout.grid is not None), None)


def _known(vrdd: RecordedRDD) -> list[PartitionSchema]:
    """Return the known schemas of the partitions that the blocks were made of, without asking workers."""
    before: RecordedRDD | None = vrdd
    recent = Residency.came
    while before is not None and before._unknown != recent:
        if before._residency is not None and before._residency.contents:
            return list(before._residency.contents.values())
        before = before._before if before._op.keeps_grid else None
    vrdd._unknown = recent        # so that steps of a loop of which nothing has run do not look all the way back
    return []


def _check_for_a_grid(vrdd: RecordedRDD, operation: str) -> None:
    """Refuse records that are known to be no blocks of a grid.

    Raises
    ------
    PlanError
        If it is.
    """
    layouts = [content.layout for content in _known(vrdd) if content.count]
    if layouts and all(layout.grid is None for layout in layouts):
        kind = f"pairs with {layouts[0].kind}" if layouts[0].keyed else layouts[0].kind
        raise PlanError(f"this needs the blocks of a Grid, under their keys, and the records are {kind}: start "
                        'from Grid(shape, splits).scatter(sc, array).cache("GPU")', Place(operation=operation))


def window(vrdd: Recorded, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> Recorded:
    """Return the VRDD of each block's cells within a window of the grid; for ``Grid.gather``."""
    return vrdd._then(ops.Window(starts, stops, steps))


def windowed(vrdd: RecordedRDD, cells: CellSelection) -> list[Any] | None:
    """Return the records that have cells in a window, cut to the window, if workers hold the blocks; else None."""
    vrdd._run_loops()
    residency, description = vrdd._residency, described(vrdd)
    contents = residency.contents if residency is not None else {}
    if description is None or len(contents) < vrdd.getNumPartitions():
        return None
    description.check_whole([number for content in contents.values() for number in content.positions])
    reached = set(cells.blocks(description))
    indexes = sorted(index for index, content in contents.items() if not reached.isdisjoint(content.positions))
    cut = window(vrdd, cells.starts, cells.stops, cells.steps)
    answer = cut._evaluate(indexes or [min(contents)], FETCH)
    records = [record for index in sorted(answer.records) for record in answer.records[index]]
    return [record for record in records if record[0].number in reached] or records[:1]


def mapped(vrdd: Recorded, spec: MapSpec) -> Recorded:
    """Return a function mapped over the cells, with halos if it reads neighbours.

    Raises
    ------
    PlanError
        If it does, and the halos are stale.
    """
    if not reaches_out(spec):
        return vrdd._then(ops.Map(spec))
    before = with_halos(vrdd)
    if not _halos_are_fresh(before):
        _check_for_a_grid(vrdd, spec.label)
        raise PlanError("a stencil reads its neighbours' cells, and needs a Grid whose halos are fresh; since this "
                        "version was computed they have not been exchanged: call .halo_extract().halo_shuffle() "
                        "on it first. Records that come from no Grid have no neighbours: start from Grid(shape, "
                        "splits).scatter(sc, array)", Place(operation=spec.label))
    return before._then(ops.Map(spec))


def with_halos(vrdd: Recorded) -> Recorded:
    """Return the VRDD, with halos where they were shuffled."""
    return halo_append(vrdd) if vrdd._shuffled else vrdd


def _keep_something(vrdd: RecordedRDD) -> None:
    """Cache this VRDD if none before it is cached: a plan that reads neighbours starts from content that workers
    hold.
    """
    before: RecordedRDD | None = vrdd
    while before is not None and before._residency is None:
        before = before._before
    if before is None:
        vrdd.persist()


def _halos_are_fresh(vrdd: RecordedRDD) -> bool:
    """Return whether the halos were appended and nothing was computed since."""
    return ops.has_halos(vrdd._backwards())


def run_loop(vrdd: RecordedRDD, spec: LoopSpec) -> None:
    """Run a loop in parts, each of which starts from the one before."""
    looped, session = vrdd, Session.of(vrdd.ctx)
    last = looped._before

    pace = session.pace(looped._loader, spec.phases_key)

    def run(steps: int, done: int) -> Iterated:
        nonlocal last
        part = last._then(ops.Iterate(spec.part(steps, done))).persist()
        part._residency.pace = pace
        begin_part(part)
        # Of the last part it is known how it ends, where nothing is asked of its cells: it is not waited for.
        if spec.depends or done + steps < spec.steps or not part._is_complete():
            session.complete(part._loader, part._residency, range(part.getNumPartitions()), part._chain)
        part._let_go_of_inputs()
        last = part
        return part._residency.iterated or Iterated(steps, -1.0)

    with showing(spec.label, spec.steps, "steps", looped._progress) as progress:
        def show(done: int, change: float) -> None:
            progress.update(done, "" if change < 0 else f"change {change:.3g}")

        looped._loop = run_parts(spec.steps, spec.until, run, show, pace, spec.label, spec.period)
    with looped._lock:
        name = looped.name() or str(looped._op)
        # Its lineage is that of its parts, of which there are snapshots.
        looped._op, looped._lineage, looped._before = last._op, last._lineage, last._before
        looped._origin = last._origin
        looped._residency, last._residency = last._residency, None
        looped._residency.rename(name)
        looped.is_cached = True
    looped._let_go_of_inputs()
