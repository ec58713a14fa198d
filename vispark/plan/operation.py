"""Recorded operations: what each of them answers, and what it is given when it becomes steps of a worker's plan.

An operation is frozen and equal by content. One that differs from :class:`RecordedOperation` in something says so by a
method of its own, in a file of :mod:`vispark.plan.operations`; nothing else asks which operation it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import field
from typing import Protocol

from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.messages import Launch, Signature, Step
from vispark.data.grid.selection import CellSelection
from vispark.data.records import RecordLayout
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import Place, PlanError
from vispark.plan.cuda_source import ArrayValue
from vispark.plan.fold import FoldSpec
from vispark.plan.loop_call import LoopSpec
from vispark.plan.map_call import Mapped, MapSpec
from vispark.plan.references import TableReference
from vispark.plan.slots import ArgumentRef, ModuleTable, SlotTable
from vispark.translate.frontend.index_faults import LabelledFunction

#: Items of pairs, as layouts name them.
KEYS, VALUES = "0", "1"


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """Content of blocks of one layout and signature after an operation; ``count`` is below 0 while it equals the
    input's. ``mapped`` is the kernel of a function that was mapped.
    """

    layout: RecordLayout
    signature: Signature | None
    count: int = -1
    mapped: Mapped | None = field(default=None, compare=False)

    def content(self, before: PartitionSchema, others: Sequence[OperatorOutput]) -> PartitionSchema:
        """Return a partition's schema after the operation; ``others`` are the outputs for all its blocks."""
        keyed = self.layout.keyed or self.layout.only == "keys"
        signatures = tuple([state.signature for state in others if state.signature is not None])
        return PartitionSchema(before.count if self.count < 0 else self.count, before.keys if keyed else 0, self.layout,
                               signatures, before.positions if self.layout.grid else ())

    def blocks(self, label: str) -> Signature:
        """Return the signature of the blocks that a kernel is to work on.

        Raises
        ------
        PlanError
            If there are none.
        """
        if self.layout.only or self.signature is None:
            raise PlanError("a kernel needs blocks, and here keys() or values() left none: give it what a function "
                            "takes of the records, as in .vmap(lambda kv: kv[1])", Place(operation=label))
        return self.signature


class PlanBuilder(Protocol):
    """Interface of a plan that is being made: operations say what their results look like, and append their steps.

    Attributes
    ----------
    nodes : LogicalPlan
        What is lowered, from behind the start.
    shared_limit : int
        The bytes of shared memory that thread blocks can have.
    slots : SlotTable
        The values that requests bring.
    modules : ModuleTable
        The plan's sources.
    states : list of list of OperatorOutput
        Of each variant what its blocks are at the start and behind each node.
    launches : list of list of Launch
        Of each variant its launches.
    """

    nodes: LogicalPlan
    shared_limit: int
    slots: SlotTable
    modules: ModuleTable

    @property
    def states(self) -> list[list[OperatorOutput]]: ...

    @property
    def launches(self) -> list[list[Launch]]: ...

    def append(self, step: Step, label: str = "") -> None:
        """Append a step; ``label`` is its name in profiles, if it launches kernels."""

    def on_device(self, step: Step | None = None, label: str = "") -> None:
        """Append a step that runs on the device, behind a copy to the device unless the last step is one."""

    def only_kind(self, label: str) -> str:
        """Return the kind of the records of all partitions, "rows" or "blocks". Raises PlanError if they differ."""

    def is_last(self, position: int) -> bool:
        """Return whether the result behind a position is fetched and nothing else."""


class GridPlanBuilder(PlanBuilder, Protocol):
    """Interface of a plan on the blocks of a grid that is being made."""

    def mapped_cells(self, spec: MapSpec, state: OperatorOutput, position: int) -> OperatorOutput:
        """Return blocks after a function of their cells."""

    def check_loop(self, spec: LoopSpec, state: OperatorOutput, position: int) -> None:
        """Raise an error if a loop cannot run on blocks."""

    def check_halos(self, position: int, label: str) -> None:
        """Raise PlanError if a kernel at a position would get stale halos."""

    def padded(self, signature: Signature) -> Signature:
        """Return the signature of blocks with the halos around them."""

    def stencil(self, spec: MapSpec, position: int) -> None:
        """Append a function of cells, behind the exchange that it needs."""

    def iterate(self, spec: LoopSpec, position: int) -> None:
        """Append a loop."""

    def exchange_everything(self, position: int) -> None:
        """Append an exchange of all ghost cells, of which none are fresh behind the step after it."""

    def forget_halos(self) -> None:
        """Note that no ghost cells are fresh any more."""

    def without_grid(self, position: int) -> None:
        """Append the operation at a position as it is of blocks that are no grid's."""


class RecordedOperation:
    """An operation as it was recorded: frozen, equal by content. A subclass is a frozen dataclass with a ``__str__``,
    which is its name in plans and errors.
    """

    #: Where its result is, "host" or "device"; "" where it stays where it was.
    place = "device"
    #: Whether it begins a chain.
    begins = False
    #: Whether it computes nothing, and its result is where, and fresh as, those before it left it.
    passes_on = False
    #: The item of pairs that it takes: ``KEYS``, ``VALUES``, or "".
    item = ""
    #: How the records that it begins with are laid out, where that is known before they are looked at.
    layout: RecordLayout | None = None
    #: Whether its results have fresh halos; None where they have if those before it had.
    halos: bool | None = False
    #: Whether its results are blocks of the grid that it was given blocks of.
    keeps_grid = False
    #: Whether each variant of the plan has a launch for it.
    has_launch = False

    @property
    def key(self) -> Hashable:
        """Cache key of the operation in plans: all but the values of arguments, which come with each pass."""
        return self if self.__dict__ else type(self).__name__

    # -- what it is to others -----------------------------------------------------------------------------------------

    @property
    def call(self) -> MapSpec | None:
        """The function that it maps, which can be one kernel with those after it."""
        return None

    @property
    def publication(self) -> AttachedPublication | None:
        """The publication of another application that it starts from."""
        return None

    @property
    def row_fold(self) -> FoldSpec | None:
        """The fold inside each record, which can be one kernel with the function before it."""
        return None

    @property
    def loop(self) -> LoopSpec | None:
        """The loop that it runs."""
        return None

    @property
    def selection(self) -> CellSelection | None:
        """The cells that it leaves of a grid, whose blocks its results are no more."""
        return None

    @property
    def projection(self) -> Step | None:
        """The worker's step that takes an item of pairs which were sent."""
        return None

    def value(self, origin: ArgumentRef) -> ArrayValue:
        """Return the value of an argument or a capture. Raises AssertionError if the operation has none."""
        raise AssertionError(f"{self} has no values")

    def joined(self, more: RecordedOperation) -> RecordedOperation | None:
        """Return the one operation that does this one and then another; None if there is none."""
        return None

    def needs_neighbours(self, backwards: Iterable[RecordedOperation]) -> bool:
        """Return whether it can only be computed of all partitions together, as it needs the halos of a grid's blocks;
        ``backwards`` are the operations before it, newest first.
        """
        return False

    def joins(self, nodes: Sequence[PlanNode], position: int, folded: bool) -> bool:
        """Return whether, at a position of a chain, it can be part of the kernel of the nodes before it, whose records
        are ``folded`` inside or not.
        """
        return False

    # -- what its results are -----------------------------------------------------------------------------------------

    def output(self, state: OperatorOutput, position: int, plan: PlanBuilder) -> OperatorOutput:
        """Return blocks after the operation at a position of a plan.

        Raises
        ------
        PlanError
            If it does not fit them.
        """
        return state

    def output_on_grid(self, state: OperatorOutput, position: int, plan: GridPlanBuilder) -> OperatorOutput:
        """Return blocks of a grid after the operation, as :meth:`output`."""
        return self.output(state, position, plan)

    def empty_layout(self, layout: RecordLayout) -> RecordLayout:
        """Return the layout of a partition without records after the operation.

        Raises
        ------
        PlanError
            If it needs blocks where there are none even of records.
        """
        if layout.only:
            raise stays_on_host(self)
        return layout

    # -- what workers do ----------------------------------------------------------------------------------------------

    def lower(self, plan: PlanBuilder, position: int) -> None:
        """Append the steps of the operation at a position of a plan."""
        raise AssertionError(f"no step for {self}")

    def lower_on_grid(self, plan: GridPlanBuilder, position: int) -> None:
        """Append the steps of the operation on a grid's blocks."""
        plan.without_grid(position)


def stays_on_host(op: RecordedOperation) -> PlanError:
    """Return the error of an operation on what keys() gave, or an item of a record."""
    return PlanError(f"{op} works on blocks, and what keys() gave, or an item of a record, stays on the host: call "
                     ".recv() before it")


@dataclass(frozen=True, slots=True)
class AttachedPublication:
    """Publication that an application has attached: ``key`` tells it from others of its name, ``digest`` is that of its
    secret.
    """

    name: str
    key: str
    digest: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class DatasetId:
    """Identity of a cached result: the number under which workers hold it, its name, and the place that holds what does
    not fit on devices, as :class:`~gpu_worker.protocol.plans.KeepStep` names it; "" for none.
    """

    number: int
    name: str
    spills: str = ""

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


@dataclass(frozen=True, slots=True)
class PlanNode:
    """Node of a chain: an operation, its cached result if there is one, and the snapshot that was begun of it."""

    op: RecordedOperation
    cached: DatasetId | None = None
    saved: DatasetId | None = field(default=None, compare=False)

    @property
    def dataset(self) -> DatasetId:
        """The cached result of a node that has one."""
        assert self.cached is not None
        return self.cached


LogicalPlan = tuple[PlanNode, ...]


def tables_of(chain: Sequence[PlanNode]) -> list[TableReference]:
    """Return the tables that functions of a chain take by reference, each once."""
    calls = [call for node in chain for call in (node.op.call, *(node.op.loop.phases if node.op.loop else ())) if call]
    return list(dict.fromkeys([table for call in calls for table in call.tables]))


def functions_of(chain: Sequence[PlanNode]) -> list[LabelledFunction]:
    """Return the functions that a chain's operations map or step by, with what errors call their kernels."""
    calls = [call for node in chain for call in (node.op.call, *(node.op.loop.phases if node.op.loop else ())) if call]
    return [(call.label, call.function.definition) for call in calls]


def has_halos(backwards: Iterable[RecordedOperation]) -> bool:
    """Return whether operations, given newest first, leave a grid's blocks with fresh halos."""
    return next((op.halos for op in backwards if op.halos is not None), False)


def takes_pairs_of_call(nodes: Sequence[PlanNode], position: int) -> bool:
    """Return whether a node takes an item of the pairs of the ``vmap`` before it, whose result is not cached."""
    before = nodes[position - 1]
    return position > 0 and bool(nodes[position].op.item) and before.op.call is not None and before.cached is None
