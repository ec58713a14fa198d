"""Folds by kernels that fold what they make: launches on all blocks of a device, in waves or in rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.device.memory.partition import Block, Partition
from gpu_worker.execution.folds import work_folds
from gpu_worker.execution.folds.folder import Folder
from gpu_worker.execution.folds.partial_folds import PartitionFold
from gpu_worker.execution.folds.work_folds import PartialAccumulators
from gpu_worker.execution.launches import tiling as works
from gpu_worker.execution.launches.kernel_launches import Entry, Launches, variant_of, works_of
from gpu_worker.execution.launches.wave_deals import PieceFold, Runs, WaveDeals, WaveFold, works_in
from gpu_worker.protocol.messages import Launch, MapFoldStep, Out

#: The bytes that the works of a fold leave at once; where one leaves more, those of one.
_ROUND_BYTES = 2 << 30


@dataclass(frozen=True)
class FoldLaunches:
    """Launcher of those kernels of one plan whose works fold what they make.

    Parameters
    ----------
    launches : Launches
        The launches of the plan's kernels.
    """

    launches: Launches

    def fold_inside(self, step: MapFoldStep, values: Sequence[Partition]) -> dict[tuple[int, int], Block]:
        """Fold each block of some partitions to a record; as :meth:`Launches.table`."""
        after = {}
        for device, entries in self.launches.groups(step, values):
            self._fold(step, device, entries, inside=True)
            for entry in entries:
                after[entry.value.index, entry.place] = tuple(entry.results.values())
        return after

    def fold_piece(self, step: MapFoldStep, value: Partition) -> Block | None:
        """Fold the next piece of a partition's only block; return the block's record behind the last piece."""
        deals, piece = self.launches.deals, value.piece
        assert deals is not None and piece is not None
        ((device, (entry,)),) = self.launches.groups(step, [value], results=piece.is_last)
        key, partials = (id(step), value.index), entry.launch.partials

        def make_partials(runs: Runs, _: int) -> Sequence[Buffer]:
            if key not in deals.piece_folds:
                folder = Folder(device, self.launches.streams.main(device), self.launches.scratch)
                works_of_block = len(deals.works(step, device, (value.index, 0), variant_of(entry)))
                deals.piece_folds[key] = PieceFold(folder, runs[0][0], works_of_block, [
                    work_folds.accumulators(folder, partial, works_of_block) for partial in partials])
            fold, (first, behind) = deals.piece_folds[key], runs[0]
            return [_of_works(buffer, (first - fold.first, behind - fold.first), fold.works)
                    for buffer in fold.partials]

        self.launches.launch(step, device, [entry], make_partials)
        if not piece.is_last:
            return None
        fold = deals.piece_folds.pop(key)
        addresses = [[entry.array(Out(partial.field)).on_device.address] for partial in partials]
        self._join(step, entry.launch, fold.folder, fold.partials, work_folds.results_of(entry.launch),
                   np.array([0, fold.works], np.int64), addresses, [value.index])
        _recycle(fold.folder, fold.partials, inside=True)
        return tuple(entry.results.values())

    def fold(self, step: MapFoldStep, values: Sequence[Partition]) -> list[PartitionFold]:
        """Fold the results of a kernel on some partitions' blocks, on each device; return partial results, to be copied
        out.
        """
        counted = [value for value in values if value.count]
        groups = self.launches.groups(step, counted, results=False)
        if self.launches.deals is not None:
            for device, entries in groups:
                self._fold_wave(self.launches.deals, step, device, entries)
            return []
        folds = []
        for device, entries in groups:
            folder, accumulators = self._fold(step, device, entries, inside=False, alone=len(groups) == 1)
            partitions = {entry.value.index: entry.value.count for entry in entries}
            folds.append(_partition_fold(step, entries[0].launch, accumulators, folder, partitions))
        return folds

    def _fold_wave(self, deals: WaveDeals, step: MapFoldStep, device: Device, entries: Sequence[Entry]) -> None:
        """Launch a group's kernel on a wave of its blocks, and keep the accumulators of its works."""
        launch = entries[0].launch
        key = device, self.launches.launch_table.group(step, variant_of(entries[0]))

        runs, buffers = Runs(), list[Buffer]()

        def make_partials(new: Runs, total: int) -> Sequence[Buffer]:
            runs.extend(new)
            scratch, stream = self.launches.scratch, self.launches.streams.main(device)
            if key not in deals.folds:
                folder = Folder(device, stream, scratch)
                partials = [work_folds.accumulators(folder, partial, total) for partial in launch.partials]
                place = deals.place(step, device, variant_of(entries[0]))
                deals.folds[key] = WaveFold(step, launch, folder, total, partials, place)
            if len(runs) < 2:
                return [_of_works(buffer, runs[0] if runs else (0, 0), total) for buffer in deals.folds[key].partials]
            buffers.extend(scratch.allocate(works_in(runs) * buffer.nbytes // total, device, stream)
                           for buffer in deals.folds[key].partials)
            return buffers

        self.launches.launch(step, device, entries, make_partials)
        for whole, part in zip(deals.folds[key].partials, buffers, strict=False):
            self._spread(whole, part, runs, deals.folds[key].works)
        deals.folds[key].counts.update((entry.value.index, entry.value.count) for entry in entries)

    def _spread(self, whole: Buffer, part: Buffer, runs: Runs, total: int) -> None:
        """Copy what some works left to its places among those of all works, and let later work have the memory."""
        stream, start = self.launches.streams.main(whole.device), 0
        for run in runs:
            target = _of_works(whole, run, total)
            whole.device.copy_across(target, part.part(start, target.nbytes), stream=stream)
            start += target.nbytes
        self.launches.scratch.recycle(part, stream)

    def finish(self) -> list[PartitionFold]:
        """Join what the works of all waves left, as :meth:`fold` does of a plan that runs at once."""
        deals = self.launches.deals
        waiting = sorted(deals.folds.values(), key=lambda each: each.place) if deals is not None else []
        folds = []
        for whole in waiting:
            dtypes = work_folds.results_of(whole.launch) if len(waiting) == 1 else [""] * len(whole.launch.partials)
            addresses, accumulators = work_folds.result(whole.folder, whole.launch.partials, dtypes)
            bounds = np.array([0, whole.works], np.int64)
            self._join(whole.step, whole.launch, whole.folder, whole.partials, dtypes, bounds,
                       [[address] for address in addresses], list(whole.counts))
            _recycle(whole.folder, whole.partials, inside=False)
            folds.append(_partition_fold(whole.step, whole.launch, accumulators, whole.folder, whole.counts))
        return folds

    def _fold(self, step: MapFoldStep, device: Device, entries: Sequence[Entry], inside: bool,
              alone: bool = False) -> tuple[Folder, list[PartialAccumulators]]:
        """Launch a group's kernel and join the accumulators of its works: in the entries' results, or in arrays to copy
        out.

        Of a group that is ``alone`` these are the result, and no accumulators.
        """
        launch = entries[0].launch
        folder = Folder(device, self.launches.streams.main(device), self.launches.scratch)
        partials: list[Buffer] = []

        def make_partials(runs: Runs, total: int) -> Sequence[Buffer]:
            partials.extend(work_folds.accumulators(folder, partial, works_in(runs)) for partial in launch.partials)
            return partials

        if not inside and _in_rounds(launch, device, entries):
            dealt = self._rounds(step, device, entries, folder, partials)
        else:
            dealt = self.launches.launch(step, device, entries, make_partials)
        accumulators: list[PartialAccumulators] = []
        dtypes = work_folds.results_of(launch) if inside or alone else [""] * len(launch.partials)
        if inside:
            bounds = works.starts(dealt, len(entries))
            targets = [[entry.array(Out(partial.field)) for entry in entries] for partial in launch.partials]
            addresses = [[target.on_device.address for target in each] for each in targets]
        else:
            bounds = np.array([0, len(dealt)], np.int64)
            results, accumulators = work_folds.result(folder, launch.partials, dtypes)
            addresses = [[address] for address in results]
        self._join(step, launch, folder, partials, dtypes, bounds, addresses,
                   [entry.value.index for entry in entries])
        _recycle(folder, partials, inside=inside)
        return folder, accumulators

    def _rounds(self, step: MapFoldStep, device: Device, entries: Sequence[Entry], folder: Folder,
                totals: list[Buffer]) -> np.ndarray:
        """Launch a group's kernel on some blocks after others, and add what its works leave to ``totals``, which are
        of one work then; return that work.

        So a fold by key into a table of several GiB takes no more memory for accumulators than two works leave.
        """
        launch = entries[0].launch
        most = max(1, _ROUND_BYTES // _partial_bytes(launch))
        dealt = np.zeros((1, 3), np.int64)
        for start in range(0, len(entries), most):
            together, partials = entries[start:start + most], list[Buffer]()

            def make_partials(runs: Runs, total: int, buffers: list[Buffer] = partials) -> Sequence[Buffer]:
                buffers.extend(work_folds.accumulators(folder, partial, works_in(runs)) for partial in launch.partials)
                return buffers

            count = len(self.launches.launch(step, device, together, make_partials, most))
            if count > 1:
                joined = [work_folds.accumulators(folder, partial, 1) for partial in launch.partials]
                self._join(step, launch, folder, partials, [""] * len(partials), np.array([0, count], np.int64),
                           [[buffer.address] for buffer in joined], [entry.value.index for entry in together])
                _recycle(folder, partials, inside=False)
                partials = joined
            if totals:
                for total, partial, one in zip(totals, launch.partials, partials, strict=True):
                    folder.add(total, one, partial.width, work_folds.joining(partial))
            elif count:
                totals.extend(partials)
        return dealt

    def _join(self, step: MapFoldStep, launch: Launch, folder: Folder, partials: Sequence[Buffer],
              dtypes: Sequence[str], bounds: np.ndarray, addresses: Sequence[Sequence[int]],
              partitions: Sequence[int]) -> None:
        """Join accumulators of works, from one of the ``bounds`` to the next, at each array's ``addresses``."""
        progress, scratch, device, stream = self.launches.progress, folder.scratch, folder.device, folder.stream
        segments = len(bounds) - 1
        table = scratch.upload(np.concatenate([bounds, np.array(addresses, np.int64).reshape(-1)]), device, stream)
        with progress.launching(step.label, partitions, device):
            for place, (partial, buffer) in enumerate(zip(launch.partials, partials, strict=True)):
                at = table.address, table.address + bounds.nbytes + place * segments * bounds.itemsize
                work_folds.join(folder, partial, buffer, at, segments, dtypes[place])
        progress.mark(step.label, partitions, device, stream)
        scratch.forget(table, stream)


def _recycle(folder: Folder, partials: Sequence[Buffer], *, inside: bool) -> None:
    """Give the memory of joined accumulators back, for later work of their stream."""
    for buffer in folder.buffers if inside else partials:
        folder.scratch.recycle(buffer, folder.stream)
    folder.buffers = [] if inside else [each for each in folder.buffers if each not in partials]


def _of_works(buffer: Buffer, run: tuple[int, int], total: int) -> Buffer:
    """Return the part of a buffer that works from one on to before another leave, of as many as it is for."""
    work_bytes = buffer.nbytes // max(total, 1)
    return buffer.part(run[0] * work_bytes, (run[1] - run[0]) * work_bytes)


def _partial_bytes(launch: Launch) -> int:
    """Return the bytes that a work of a launch leaves."""
    return sum(work_folds.accumulator_bytes(partial) for partial in launch.partials)


def _in_rounds(launch: Launch, device: Device, entries: Sequence[Entry]) -> bool:
    """Return whether what all works leave is so large that a fold goes on from block to block."""
    return len(works_of(launch, device, entries)) * _partial_bytes(launch) > _ROUND_BYTES


def _partition_fold(step: MapFoldStep, launch: Launch, left: Sequence[PartialAccumulators], folder: Folder,
                    counts: Mapping[int, int]) -> PartitionFold:
    """Return the partial result of a fold of partitions with some numbers of records."""
    index = next(iter(counts)) if len(counts) == 1 else -1
    return work_folds.fold_of_works(step, launch, left, folder, index, sum(counts.values()))
