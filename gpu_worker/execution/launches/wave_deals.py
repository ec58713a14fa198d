"""Deals of a plan's works over all of its partitions, for launches that run on a wave of them at a time.

The works of a table launch, and with them the order in which a fold joins what they leave, depend on the rows of all
blocks that share the launch. A plan that runs in waves therefore deals as if all partitions were launched at once, lets
each wave do its own works, and joins when the last wave is done: the bits are those of a plan that runs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.device.memory.partition import Partition, PieceOfPartition
from gpu_worker.execution.folds.folder import Folder
from gpu_worker.execution.folds.piece_folds import PieceFolder
from gpu_worker.execution.folds.work_folds import accumulator_bytes
from gpu_worker.execution.launches import tiling as works
from gpu_worker.execution.launches.launch_table import LaunchTable
from gpu_worker.protocol.errors import LaunchError
from gpu_worker.protocol.messages import ExecStep, Field, In, Launch, MapFoldStep
from gpu_worker.protocol.payload import field_bytes

#: Runs of works that follow each other: the number of the first, and that behind the last.
Runs = list[tuple[int, int]]

#: The bytes that a work reads for each byte that it leaves, at least, where works are kept small.
_READ_FOR_LEFT = 16


def rows_of(launch: Launch, inputs: Mapping[str, Field]) -> int:
    """Return the leading extent, by its fields, of a block that a launch goes over; 1 if it takes the block as a whole.

    Raises
    ------
    LaunchError
        If the block has no such field, or the field no leading axis.
    """
    if launch.whole:
        return 1
    first = next((argument for argument in launch.arguments if isinstance(argument, In)), None)
    if first:
        if first.field not in inputs:
            raise LaunchError(f"the block has no field {first.field!r}; it has {', '.join(map(repr, inputs))}")
        described = inputs[first.field]
    elif launch.partials:       # what a fold leaves says nothing of the rows that it goes over
        described = next(iter(inputs.values()))
    else:
        described = launch.outputs[0]
    if not described.shape:
        raise LaunchError(f"field {described.name!r} has no leading axis to launch along")
    return described.shape[0]


def most_works(launch: Launch, device: Device) -> int:
    """Return about how many works a launch on a device deals its rows to, at most; 0 for one for each tile."""
    blocks = launch.cluster if device.clusters else 1
    return max(1, round(launch.waves * device.multiprocessors / blocks)) if launch.waves > 0 else 0


def largest_work(launch: Launch, inputs: Mapping[str, Field], device: Device) -> int:
    """Return the most rows of a work of a launch that folds, by the fields of its block; 0 for any number.

    It does not depend on how much memory there is, as the bits of a fold depend on its works.
    """
    if not (launch.partials and device.work_bytes):
        return 0
    ports = {argument.field for argument in launch.arguments if isinstance(argument, In)} & inputs.keys()
    row_nbytes = sum(field_bytes(inputs[name]) // max(inputs[name].shape[0], 1) for name in ports if inputs[name].shape)
    partial_nbytes = sum(accumulator_bytes(partial) for partial in launch.partials)
    return max(1, max(device.work_bytes, _READ_FOR_LEFT * partial_nbytes) // max(row_nbytes, 1))


@dataclass
class WaveFold:
    """Fold whose works' accumulators are collected over the waves, to be joined behind the last one."""

    step: MapFoldStep
    launch: Launch
    folder: Folder
    #: How many works there are in all waves.
    works: int
    partials: list[Buffer]
    #: Its place among the plan's launches.
    place: int
    #: The records of each partition so far.
    counts: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PieceFold:
    """Fold of one block that comes in pieces, whose works' accumulators are joined behind the last one."""

    folder: Folder
    #: The first of the block's works, among those of all waves, and how many it has.
    first: int
    works: int
    partials: list[Buffer]


@dataclass(frozen=True)
class _Group:
    """Blocks of all waves that share a launch: the place of each, by the numbers of partition and block, and rows."""

    places: dict[tuple[int, int], int]
    rows: tuple[int, ...]
    largest: int


class WaveDeals:
    """Deals of a plan over all of its partitions.

    Parameters
    ----------
    launch_table : LaunchTable
        Its launches.
    values : sequence of Partition
        All partitions that it starts from, in order.
    fields_before : callable
        Gives the fields that a step finds in a block of a variant.
    """

    def __init__(self, launch_table: LaunchTable, values: Sequence[Partition],
                 fields_before: Callable[[ExecStep | MapFoldStep, int], Sequence[Field]]):
        self._launch_table, self._fields_before = launch_table, fields_before
        self._values = [(value.index, value.count, value.device, tuple(value.variants)) for value in values]
        self._groups: dict[tuple[int, Device, int], _Group] = {}
        #: The folds that wait for further waves, in the order in which a plan that runs at once has them.
        self.folds: dict[tuple[Device, int], WaveFold] = {}
        #: The folds inside blocks that come in pieces, by step and partition.
        self.piece_folds: dict[tuple[int, int], PieceFold] = {}
        #: What folds a partition that comes in pieces, by step and partition.
        self.piece_folders: dict[tuple[int, int], PieceFolder] = {}

    def works(self, step: ExecStep | MapFoldStep, device: Device, block: tuple[int, int], variant: int) -> np.ndarray:
        """Return the first rows of the works of one block, given by the numbers of partition and block."""
        launch = self._launch_table.launch(step, variant)
        group = self._group(step, device, self._launch_table.group(step, variant))
        dealt = works.tile_rows(group.rows, launch.tile, most_works(launch, device), group.largest)
        return dealt[dealt[:, 0] == group.places[block], 1]

    def deal(self, step: ExecStep | MapFoldStep, device: Device, launch: Launch, blocks: Sequence[tuple[int, int]],
             variant: int, piece: PieceOfPartition | None) -> tuple[np.ndarray, Runs, int]:
        """Return the works of some blocks in their order, given by the numbers of partition and block, or of a piece of
        a single one, as :func:`~gpu_worker.execution.launches.tiling.deal` does; where they are among all works of all
        waves, and how many those are.
        """
        group = self._group(step, device, self._launch_table.group(step, variant))
        dealt = works.tile_rows(group.rows, launch.tile, most_works(launch, device), group.largest)
        places = [group.places[block] for block in blocks]
        assert places == sorted(places), "a wave takes blocks out of their order"
        if piece is not None and piece.of_rows:
            first, behind = np.searchsorted(dealt[:, 0], [places[0], places[0] + 1])
            own = dealt[first:behind, 1]
            behind = behind if piece.is_last else first + np.searchsorted(own, piece.behind)
            first += np.searchsorted(own, piece.first)
            return dealt[first:behind] - np.array([places[0], piece.first, 0]), [(int(first), int(behind))], len(dealt)
        bounds = np.searchsorted(dealt[:, 0], places), np.searchsorted(dealt[:, 0], places, side="right")
        parts = [dealt[first:behind] - np.array([place - number, 0, 0])
                 for number, (place, first, behind) in enumerate(zip(places, *bounds, strict=True))]
        return np.concatenate(parts), _runs(zip(*(each.tolist() for each in bounds), strict=True)), len(dealt)

    def place(self, step: ExecStep | MapFoldStep, device: Device, variant: int) -> int:
        """Return the place of a launch among those of a step, in the order of their first blocks."""
        blocks = self._group(step, device, self._launch_table.group(step, variant)).places
        order = [(index, place) for index, _, _, variants in self._values for place in range(len(variants))]
        return order.index(next(iter(blocks)))

    def _group(self, step: ExecStep | MapFoldStep, device: Device, number: int) -> _Group:
        key = id(step), device, number
        if key not in self._groups:
            counted = not self._launch_table.is_by_block(step)
            rows: dict[tuple[int, int], int] = {}
            largest = 0
            for index, count, of, variants in self._values:
                if of is device and (count or not counted):
                    for place, variant in enumerate(variants):
                        if self._launch_table.group(step, variant) == number:
                            launch = self._launch_table.launch(step, variant)
                            fields = {each.name: each for each in self._fields_before(step, variant)}
                            rows[index, place] = rows_of(launch, fields)
                            largest = largest or largest_work(launch, fields, device)
            self._groups[key] = _Group({block: place for place, block in enumerate(rows)}, tuple(rows.values()),
                                       largest)
        return self._groups[key]


def works_in(runs: Runs) -> int:
    """Return the number of works in runs.

    Examples
    --------
    >>> works_in([(0, 3), (5, 6)])
    4
    """
    return sum(behind - first for first, behind in runs)


def _runs(bounds: Iterable[tuple[int, int]]) -> Runs:
    """Merge ascending runs that touch, and leave out empty ones."""
    runs: Runs = []
    for first, behind in bounds:
        if runs and runs[-1][1] == first:
            runs[-1] = runs[-1][0], behind
        elif first < behind:
            runs.append((first, behind))
    return runs
