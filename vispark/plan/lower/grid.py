"""Lowering of a chain that starts on a grid's blocks, up to the operation whose results are a grid's no more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpu_worker.protocol import messages
from gpu_worker.protocol.grids import ExchangeStep, Halo, IterateStep, Phase, StencilStep
from gpu_worker.protocol.messages import Signature, StencilLaunch
from vispark._utils.lazy import LazyModule
from vispark.data.grid.spec import GridSpec
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import Place, PlanError
from vispark.plan import ops
from vispark.plan.loop_call import LoopSpec
from vispark.plan.lower.lowering import Lowering
from vispark.plan.lower.stages import FusedStage, RequestedOutput
from vispark.plan.map_call import MapSpec
from vispark.plan.operation import DatasetId, LogicalPlan, OperatorOutput, PlanNode
from vispark.plan.slots import ArgumentRef
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT

if TYPE_CHECKING:
    from vispark.plan.lower import grid_passes, grid_stencils
else:
    grid_passes = LazyModule("vispark.plan.lower.grid_passes")
    grid_stencils = LazyModule("vispark.plan.lower.grid_stencils")


def lowering(chain: LogicalPlan, start: DatasetId | None, requested: RequestedOutput,
             contents: Iterable[PartitionSchema], shared_limit: int) -> Lowering:
    """Return a lowering of a chain for partitions of the given schemas and for devices whose thread blocks can have
    ``shared_limit`` bytes of shared memory.
    """
    grid = next((content.layout.grid for content in contents if content.layout.grid is not None), None)
    if grid is None:
        return Lowering(chain, start, requested, shared_limit)
    return GridLowering(chain, start, requested, grid, shared_limit)


class GridLowering(Lowering):
    """Lowering of a chain on a grid's blocks to a plan.

    Parameters
    ----------
    chain, start, requested, shared_limit
        As for :class:`~vispark.plan.lower.lowering.Lowering`.
    description : GridSpec
        The grid.
    """

    def __init__(self, chain: LogicalPlan, start: DatasetId | None, requested: RequestedOutput, description: GridSpec,
                 shared_limit: int = SHARED_LIMIT):
        super().__init__(chain, start, requested, shared_limit)
        self.description = description
        self.stencils: list[StencilLaunch] = []
        #: Each loop with its stencils, the passes of a step, and those of so many steps at once.
        self._loops: list[tuple[LoopSpec, grid_passes.Maps, grid_passes.Maps, grid_passes.Maps, int]] = []
        self._first = len(chain) - len(self.nodes)

    # -- what blocks become -------------------------------------------------------------------------------------------

    def _after(self, state: OperatorOutput, node: PlanNode, position: int) -> OperatorOutput:
        if state.layout.grid is None or state.signature is None:
            return super()._after(state, node, position)
        if state.layout.grid != self.description:
            raise PlanError("the partitions hold blocks of different grids; a VRDD is of one")
        return node.op.output_on_grid(state, position, self)

    def mapped_cells(self, spec: MapSpec, state: OperatorOutput, position: int) -> OperatorOutput:
        """Return blocks after a function of their cells."""
        assert state.signature is not None
        layout, signature = self._map(spec, state.signature, position).after(state.layout, state.signature)
        return replace(state, layout=layout, signature=signature)

    def _map(self, spec: MapSpec, signature: Signature, position: int) -> grid_stencils.CellMap:
        return grid_stencils.CellMap.of(spec, signature, self.description, position)

    def check_loop(self, spec: LoopSpec, state: OperatorOutput, position: int) -> None:
        """Raise an error if a loop cannot run on blocks."""
        assert state.signature is not None
        grid_stencils.loop_maps(spec, state.layout, state.signature, self.description, position)

    def check_halos(self, position: int, label: str) -> None:
        """Raise PlanError if a kernel at a position would get stale halos."""
        before = (self.chain[place].op for place in range(self._first + position - 1, -1, -1))
        if any(self.description.halo) and not ops.has_halos(before):
            raise PlanError("a kernel gets a grid's blocks with their halos, and these are stale: call "
                            ".halo_extract().halo_shuffle() on the VRDD first", Place(operation=label))

    def padded(self, signature: Signature) -> Signature:
        """Return the signature of blocks with the halos around them."""
        return Signature(tuple(replace(each, shape=self.description.padded(each.shape)) for each in signature.fields))

    def _content(self, partition: int, behind: int) -> PartitionSchema:
        content = super()._content(partition, behind)
        cells = next((node.op.selection for node in self.nodes[:behind] if node.op.selection is not None), None)
        if cells is None or not content.signatures:
            return content
        # Values without their keys are at no place of the grid any more.
        positions = self._partitions.given[partition][0].positions
        signatures = []
        for number, signature in zip(positions, content.signatures, strict=True):
            shape = cells.shape_within(self.description, self.description.position_of(number))
            signatures.append(Signature(tuple(replace(each, shape=shape) for each in signature.fields)))
        return replace(content, layout=content.layout.as_blocks(), signatures=tuple(signatures), positions=())

    def finish(self) -> str:
        if ops.runs_together(self.chain, self.start):
            self.description.check_whole([number for content, _, _ in self._partitions.given.values()
                                          for number in content.positions])
        return super().finish()

    # -- the steps ----------------------------------------------------------------------------------------------------

    def _steps(self, apart: set[int]) -> None:
        self.stencils, self._loops = [], []
        states = self.states[0] if self.states else []
        there = next((position for position, state in enumerate(states) if state.layout.grid is None),
                     len(self.nodes) + 1)
        self._ghosts: grid_stencils.Ghosts | None = None
        super()._steps(apart | set(range(there + 1)))

    def _stage(self, stage: FusedStage) -> None:
        for position in range(stage.first, stage.stop):
            before = self.states[0][position] if self.states else None
            if before is None or before.layout.grid is None or before.signature is None:
                super()._stage(replace(stage, first=position))
                return
            if self._ghosts is None:
                self._ghosts = grid_stencils.Ghosts(self.description, self.slots)
            self.nodes[position].op.lower_on_grid(self, position)

    def without_grid(self, position: int) -> None:
        """Append the operation at a position as it is of blocks that are no grid's."""
        super()._stage(FusedStage(position, position + 1))

    def stencil(self, spec: MapSpec, position: int) -> None:
        """Append a function of cells, behind the exchange that it needs."""
        before = self._before(position)
        mapped = self._map(spec, before, position)
        assert self._ghosts is not None
        self._exchange(self._ghosts.stale_cells(mapped.reach, before))
        self.append(StencilStep(spec.label, self._launch(mapped)), spec.label)
        self._ghosts.written(each.name for each in mapped.kernel.outputs)

    def exchange_everything(self, position: int) -> None:
        """Append an exchange of all ghost cells, of which none are fresh behind the step after it."""
        assert self._ghosts is not None
        self._exchange(self._ghosts.all_fields(self._before(position)))
        self.forget_halos()

    def forget_halos(self) -> None:
        """Note that no ghost cells are fresh any more."""
        self._ghosts = None

    def _before(self, position: int) -> Signature:
        before = self.states[0][position].signature
        assert before is not None
        return before

    def _exchange(self, halos: tuple[Halo, ...]) -> None:
        self.append(messages.ToDeviceStep())
        if halos:
            self.append(ExchangeStep("halo_append", halos))

    def _launch(self, mapped: grid_stencils.CellMap) -> int:
        self.settled.update(mapped.settled)
        self.stencils.append(mapped.launch(self.slots, self.modules))
        return len(self.stencils) - 1

    def iterate(self, spec: LoopSpec, position: int) -> None:
        """Append a loop."""
        layout, before = self.states[0][position].layout, self._before(position)
        maps = grid_stencils.loop_maps(spec, layout, before, self.description, position)
        once, several, stride = grid_passes.passes(maps, self.description, spec.most_at_once, self.shared_limit)
        self.append(messages.ToDeviceStep())
        self.append(IterateStep(
            spec.label, self._phases(once), spec.steps, spec.counted, spec.until, spec.every, spec.check,
            self._phases(several), stride, self.slots.slot(ArgumentRef(position, "done", 0)) if spec.check else -1),
            spec.label)
        self._loops.append((spec, maps, once, several, stride))
        self._ghosts = None

    @property
    def passes(self) -> list[str]:
        """Of each loop, how often its steps go over memory, and why no more of its stencils are done at once."""
        texts = []
        for spec, maps, once, several, stride in self._loops:
            steps = f"{stride} steps in {_passes(several)}{_remaining_steps(spec, once, stride)}" if several else \
                f"a step in {_passes(once)}"
            reason = grid_passes.why_apart(maps, self.description, spec.most_at_once, self.shared_limit)
            texts.append(f"{spec.label}: {steps}" + (f"; not joined where {reason}" if reason else ""))
        return texts

    def _phases(self, maps: grid_passes.Maps) -> tuple[Phase, ...]:
        """Return the phases of a loop, each with the exchange of the ghost cells that it needs."""
        ghosts, phases = grid_stencils.Ghosts(self.description, self.slots), []
        for mapped, signature in maps:
            halos = ghosts.stale_cells(mapped.reach, signature)
            phases.append(Phase(mapped.label, halos, self._launch(mapped)))
            ghosts.written(each.name for each in mapped.kernel.outputs)
        return tuple(phases)

    def _plan(self, *parts: Any) -> messages.Plan:
        return replace(super()._plan(*parts), grid=self.description.grid_shape, stencils=tuple(self.stencils))


def _passes(maps: grid_passes.Maps) -> str:
    return f"{len(maps)} pass{'es' * (len(maps) > 1)} over memory"


def _remaining_steps(spec: LoopSpec, once: grid_passes.Maps, stride: int) -> str:
    """Return the text about the steps of a loop that remain after passes of several steps; empty if none remain."""
    remaining = spec.steps % stride
    if spec.depends:
        which = "where fewer are left before something is asked for, or at the end, a step"
    elif remaining:
        which = f"the last {remaining} of {spec.steps} a step" if remaining > 1 else f"the last of {spec.steps}"
    else:
        return ""
    return f", {which} in {_passes(once)}"
