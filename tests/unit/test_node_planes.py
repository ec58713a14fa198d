"""Grids of several nodes whose blocks do not fit a node's device: steps by planes, with cells of the other nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from gpu_worker.device.memory.grid.boxes import Lattice, around, whole
from gpu_worker.device.memory.grid.ghosts import GIVEN, MIRRORED, PERIODIC
from gpu_worker.protocol.errors import NotFinite, OutOfMemory, VisparkError, WorldLost
from gpu_worker.protocol.grids import ExchangeStep, GridShape, Iterated, IterateStep, Phase, StencilStep, World
from gpu_worker.protocol.messages import (
    ArgumentValue,
    FetchStep,
    Field,
    Input,
    KeepStep,
    LoadStep,
    Module,
    Plan,
    PutStep,
    Ran,
    Release,
    Run,
    Signature,
    Step,
    ToDeviceStep,
    Variant,
)
from gpu_worker.protocol.payload import Payload, aligned, results
from gpu_worker.protocol.plans import sealed
from tests.unit.grids import AXES, CutGrid
from tests.unit.plans import Bench
from tests.unit.test_patches_steps import SOURCE, assert_stepped, halo, launch
from tests.unit.thread_worlds import Meeting, ThreadWorld, nodes

__all__ = ["nodes"]

SHAPE = (160, 20, 32)
#: A device that has room for some planes, of 5 KiB each in the whole grid, which has 800 KiB, and half in a node.
SMALL = {"memory": 700 << 10, "stream": 16 << 10}
#: One with room for all blocks of a node and what is computed of them.
LARGE = {"memory": 16 << 20}

RULES = {"periodic": ((PERIODIC,) * 2,) * 3, "mixed": ((PERIODIC,) * 2, (MIRRORED, GIVEN), (GIVEN, MIRRORED)),
         "ends": ((GIVEN, MIRRORED), (PERIODIC,) * 2, (MIRRORED,) * 2)}


def case_of(rules: str, splits: tuple[int, ...] = (2, 2, 2), owners: Sequence[int] = (0, 1, 1, 0, 0, 1, 1, 0)
            ) -> CutGrid:
    """Return a grid of which each node has blocks at the sides, edges and corners of the other's."""
    return CutGrid(Lattice(SHAPE, splits), (2, 1, 1), RULES[rules], tuple((-10 - axis, -20 - axis) for axis in AXES),
                   False, tuple(owners))


@dataclass(frozen=True)
class Said:
    """Result of steps on nodes: the cells, and how their loops ended."""

    cells: np.ndarray
    iterated: tuple[Iterated, ...]


class GridNodes:
    """Workers that are the nodes of a grid, with their blocks below their devices.

    Parameters
    ----------
    workers : sequence of Bench
        The workers.
    case : Case
        Whose owners are the workers.
    """

    def __init__(self, workers: Sequence[Bench], case: CutGrid):
        self.workers, self.case = workers, case
        self._grid = GridShape(case.lattice.shape, case.lattice.splits, case.widths)
        self._boxes = [case.lattice.block(at) for at in whole(case.lattice.splits)]
        self._owned = [[number for number, owner in enumerate(case.owners) if owner == rank]
                       for rank in range(len(workers))]
        self._meetings = {bytes([attempt]): Meeting(len(workers)) for attempt in range(9)}
        for worker in workers:
            worker.process._grids._join = lambda wanted, *_: ThreadWorld(self._meetings[wanted.key], wanted,
                                                                         len(workers))

    def put(self, full: np.ndarray, places: Sequence[str] = ()) -> None:
        """Hold the blocks where each node is to have its own, which is below its device."""
        for rank, owned in enumerate(self._owned):
            blocks = [np.ascontiguousarray(full[tuple(map(slice, self._boxes[number].low, self._boxes[number].high))])
                      for number in owned]
            with Payload.create(sum(aligned(block.nbytes) for block in blocks)) as payload:
                offset = 0
                for block in blocks:
                    payload.put(offset, block)
                    offset += aligned(block.nbytes)
                place = places[rank] if places else "tiers"
                moves = (ToDeviceStep(),) if place == "device" else ()
                self._asked(rank, (PutStep(), *moves, KeepStep(0, "u", place)), (1,), None, [payload.release()])

    def run(self, *steps: Step, weight: float = 0.01) -> Said:
        """Run steps on all nodes at once, with as many beginnings as it takes, and return what they make of the cells.
        """
        for key in self._meetings:
            with ThreadPoolExecutor(len(self.workers)) as pool:
                futures = [pool.submit(self._began, rank, key, steps, weight) for rank in range(len(self.workers))]
                errors = [future.exception() for future in futures]
            other = [error for error in errors if error is not None and not isinstance(error, WorldLost)]
            if other:
                raise other[0]
            if not any(errors):
                break
        full = np.full(self.case.lattice.shape, np.nan)
        answers = [future.result() for future in futures]
        for rank, owned in enumerate(self._owned):
            _, data, output = self._fetched(rank)
            for number in owned:
                box = self._boxes[number]
                cells = data.field(Field("u", "<f8", box.shape), output)
                full[tuple(map(slice, box.low, box.high))] = cells
                output += aligned(cells.nbytes)
            self.workers[rank].process.handle(Release(self.workers[rank].number(), (2,)), [])
        assert len({ran.iterated for ran in answers}) == 1
        return Said(full, answers[0].iterated)

    def _began(self, rank: int, key: bytes, steps: Sequence[Step], weight: float) -> Ran:
        world = World(key, rank, ("",) * len(self.workers))
        try:
            return self._asked(rank, (LoadStep(0), *steps, KeepStep(1, "v", "tiers")), (1, 2), world, weight=weight)[0]
        except VisparkError:
            self._meetings[key].end()
            raise

    def _fetched(self, rank: int) -> tuple[Ran, Any, int]:
        ran, data = self._asked(rank, (LoadStep(0), FetchStep(-1, "")), (2,), None)
        return ran, data, ran.outputs[0].offset

    def _asked(self, rank: int, steps: Sequence[Step], vrdds: tuple[int, ...], world: World | None,
               descriptors: Sequence[int] = (), weight: float = 0.01) -> tuple[Ran, Any]:
        owned, keeps = self._owned[rank], sum(isinstance(step, KeepStep) for step in steps)
        variants = tuple(Variant(Signature((Field("u", "<f8", self._boxes[number].shape),)), (), (b"",) * keeps,
                                 (-1,) * keeps) for number in owned)
        part = Input(rank, len(owned), 0, 0, b"", tuple(range(len(owned))), tuple(owned))
        plan = Plan(tuple(steps), (Module(SOURCE.text, "around.cu", (), (), ()),), variants, (part,), (), self._grid,
                    (launch(self.case, weight),))
        key, encoded = sealed(plan)
        values = (ArgumentValue("<i4", (3,), np.array(self.case.widths, "i4").tobytes(), 0),)
        worker = self.workers[rank]
        request = Run(worker.number(), 1, 30.0, key, encoded, vrdds, values, world)
        reply, sent = worker.process.handle(request, list(descriptors))
        return reply, results(reply.data, sent)


def field() -> np.ndarray:
    return np.random.default_rng(4).normal(size=SHAPE)


def loop(case: CutGrid, steps: int, **how: Any) -> IterateStep:
    return replace(IterateStep("loop", (Phase("around", (halo(case, False),), 0),), steps, 0, -1.0, 1, 0), **how)


def on(workers: Sequence[Bench], case: CutGrid, *steps: Step, places: Sequence[str] = (), **how: Any) -> Said:
    """Run steps on nodes with these options, and return what they make of the cells."""
    grid = GridNodes(workers, case)
    try:
        grid.put(field(), places)
        return grid.run(*steps, **how)
    finally:
        for worker in workers:
            worker.process._grids.leave()


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES)
def test_nodes_go_by_planes_with_the_bits_of_one_that_holds_all(nodes: Callable[..., list[Bench]], rules: str):
    """Both nodes by planes; one of them, which the other learns; in boxes beside each other, and in one."""
    case = case_of(rules)
    alone = replace(case, owners=(0,) * 8)
    stencil = ExchangeStep("exchange", (halo(case, False),)), StencilStep("around", 0)
    halves, columns = replace(case, owners=(0, 0, 0, 0, 1, 1, 1, 1)), replace(case, owners=(0, 1) * 4)
    steps = loop(case, 7), *stencil
    expected = on(nodes(LARGE), alone, *steps)
    assert_stepped(expected.cells, field(), case, 8)
    for workers, dealt in ((nodes(SMALL, SMALL), case), (nodes(SMALL, LARGE), case), (nodes(SMALL, SMALL), halves),
                           (nodes(LARGE, SMALL), columns)):
        np.testing.assert_array_equal(on(workers, dealt, *steps).cells, expected.cells)
    tiered = on(nodes(LARGE, SMALL), case, *steps, places=("device", "tiers"))
    np.testing.assert_array_equal(tiered.cells, expected.cells)


@pytest.mark.slow
def test_three_nodes_go_by_planes_with_the_bits_of_one_that_holds_all(nodes: Callable[..., list[Bench]]):
    """Give each node cells of both others beside its own; and a node between two that do not meet."""
    among = case_of("mixed", (3, 2, 1), (0, 1, 1, 2, 2, 0))
    steps = loop(among, 7), ExchangeStep("exchange", (halo(among, False),)), StencilStep("around", 0)
    expected = on(nodes(LARGE), replace(among, owners=(0,) * 6), *steps)
    slabs, columns = replace(among, owners=(0, 0, 1, 1, 2, 2)), case_of("mixed", (1, 3, 2), (0, 1, 2, 2, 0, 1))
    for workers, dealt in (((SMALL, SMALL, SMALL), among), ((LARGE, SMALL, LARGE), columns),
                           ((SMALL, LARGE, SMALL), slabs)):
        np.testing.assert_array_equal(on(nodes(*workers), dealt, *steps).cells, expected.cells)


@pytest.mark.slow
def test_loops_that_end_are_ended_by_the_cells_of_all_nodes(nodes: Callable[..., list[Bench]]):
    case = case_of("mixed")
    alone = replace(case, owners=(0,) * 8)
    for how in ({"until": 1e-4, "every": 3}, {"until": 1e-4, "every": 2, "check": 5}, {"check": 4}):
        expected = on(nodes(LARGE), alone, loop(case, 40, **how), weight=0.0003)
        assert ("until" not in how) == (expected.iterated[0].steps == 40)
        ended = on(nodes(SMALL, SMALL), case, loop(case, 40, **how), weight=0.0003)
        assert ended.iterated == expected.iterated
        np.testing.assert_array_equal(ended.cells, expected.cells)
    messages = []
    for workers, owned in ((nodes(LARGE), alone), (nodes(SMALL, SMALL), case)):
        with pytest.raises(NotFinite, match="infinite after step 4") as error:
            on(workers, owned, loop(case, 8, check=4), weight=1e120)
        messages.append(error.value.message)
    assert messages[0] == messages[1]


def test_nodes_without_room_for_a_plane_say_so(nodes: Callable[..., list[Bench]]):
    case = case_of("periodic")
    with pytest.raises(OutOfMemory, match="planes of the grid fit"):
        on(nodes({"memory": 10 << 10, "stream": 1 << 10}, LARGE), case, loop(case, 2))


def test_cells_around_a_box_go_on_at_the_other_end():
    box, shape = whole((1, 1, 1)), (4, 4, 4)
    boxes = around(box, (1, 2, 0), shape, (True, True, True))
    cells = [cell for each in boxes for cell in each]
    assert sorted(cells) == [(z, y, 0) for z in (0, 1, 3) for y in range(4)]
    assert all(cell in boxes[0] for cell in box)
