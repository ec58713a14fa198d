"""Lowering of a chain to a plan for many partitions.

What a chain means depends on what a block looks like, so it is worked out once for each layout and signature among the
partitions: what the result looks like behind each operation, and then, for what becomes one step, its launch. Where a
step cannot do all of what it was given (:class:`~vispark.plan.lower.fusion.CannotFuse`), the rest becomes a step of
its own. Each operation says itself what its results are and which steps it is (:mod:`vispark.plan.operation`); runs of
functions become one kernel (:mod:`vispark.plan.lower.fusion`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import FoldByKeyStep, FoldStep, Input, Launch, Plan, Signature, Step, Variant
from gpu_worker.protocol.payload import field_bytes
from gpu_worker.protocol.plans import KeepKeyedStep, KeepTableStep, sealed
from vispark._utils.lazy import LazyModule
from vispark.data.records import RecordLayout
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import Place, PlanError
from vispark.plan import ops
from vispark.plan.lower import stages
from vispark.plan.lower.executable import Executable, Invocation, value_of
from vispark.plan.lower.fusion import CannotFuse, folded_outputs, fuse, is_dead
from vispark.plan.lower.stages import FusedStage, RequestedOutput
from vispark.plan.map_call import remark
from vispark.plan.operation import DatasetId, LogicalPlan, OperatorOutput, PlanNode
from vispark.plan.slots import ArgumentRef, ModuleTable, SlotTable
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT

if TYPE_CHECKING:
    from vispark.translate.nearest import two_pass
else:
    two_pass = LazyModule("vispark.translate.nearest.two_pass")


@dataclass
class GivenPartitions:
    """Partitions that a chain is lowered for.

    Attributes
    ----------
    given : dict
        By the partition's number: its schema, the place of its records in the payload, and the variants of its blocks.
    variants : dict
        By layout and signature of a block, the number of the variant.
    states : list of list of OperatorOutput
        By variant: what its blocks are at the start and behind each node.
    kinds : set of str
        What the partitions mean by a record.
    """

    given: dict[int, tuple[PartitionSchema, int, tuple[int, ...]]] = field(default_factory=dict)
    variants: dict[tuple[RecordLayout, Signature], int] = field(default_factory=dict)
    states: list[list[OperatorOutput]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)


@dataclass
class LoweredSteps:
    """Steps that a chain has become so far.

    Attributes
    ----------
    steps : list of Step
    launches : list of list of Launch
        By variant.
    labels : list of str
        What profiles call the steps that launch kernels.
    settled : set of ArgumentRef
        Numbers that shaped the kernels.
    stages : tuple of FusedStage
        The operations that are one step each.
    """

    steps: list[Step] = field(default_factory=list)
    launches: list[list[Launch]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    settled: set[ArgumentRef] = field(default_factory=set)
    stages: tuple[FusedStage, ...] = ()


class Lowering:
    """Lowering of a chain to a plan.

    Parameters
    ----------
    chain : LogicalPlan
        From its send.
    start : DatasetId or None
        What workers hold, or None to start from records in a payload.
    requested : RequestedOutput
        What is wanted.
    shared_limit : int
        The bytes of shared memory that thread blocks can have wherever it runs.
    """

    def __init__(self, chain: LogicalPlan, start: DatasetId | None, requested: RequestedOutput,
                 shared_limit: int = SHARED_LIMIT):
        self.chain, self.start, self.requested, self.shared_limit = chain, start, requested, shared_limit
        self.nodes = stages.after_start(chain, start)
        self.slots = SlotTable()
        self.modules = ModuleTable(self.slots)
        self._partitions = GivenPartitions()
        self._made = LoweredSteps()
        self.fold: FoldStep | FoldByKeyStep | str | None = None

    @property
    def states(self) -> list[list[OperatorOutput]]:
        """By variant: what its blocks are at the start and behind each node."""
        return self._partitions.states

    @property
    def kinds(self) -> set[str]:
        """What the partitions mean by a record, and mean by it to the end."""
        return self._partitions.kinds

    @property
    def steps(self) -> list[Step]:
        """The steps so far."""
        return self._made.steps

    @property
    def launches(self) -> list[list[Launch]]:
        """The launches of each variant, by step."""
        return self._made.launches

    @property
    def settled(self) -> set[ArgumentRef]:
        """Numbers that shaped the kernels."""
        return self._made.settled

    @property
    def stages(self) -> tuple[FusedStage, ...]:
        """The operations that are one step each."""
        return self._made.stages

    # -- what comes in ------------------------------------------------------------------------------------------------

    def add(self, partition: int, content: PartitionSchema, offset: int = 0) -> None:
        """Add a partition; its records are at ``offset`` of the payload.

        Raises
        ------
        PlanError
            If what the chain does does not fit its blocks.
        """
        try:
            blocks = tuple([self._variant(content.layout, signature) for signature in content.signatures])
        except PlanError as error:
            raise error.at(vrdd=self._vrdd(), partition=partition) from error.__cause__
        self._partitions.given[partition] = content, offset, blocks
        if blocks:
            self.kinds.add(content.layout.kind)

    def _vrdd(self) -> str:
        return str(self.start) if self.start else ops.name_of(self.chain)

    def _variant(self, layout: RecordLayout, signature: Signature) -> int:
        key = layout, signature
        if key not in self._partitions.variants:
            states = [OperatorOutput(layout, signature)]
            for position, node in enumerate(self.nodes):
                states.append(self._after(states[-1], node, position))
            self.states.append(states)
            self._partitions.variants[key] = len(self.states) - 1
        return self._partitions.variants[key]

    def _after(self, state: OperatorOutput, node: PlanNode, position: int) -> OperatorOutput:
        return node.op.output(state, position, self)

    # -- the plan -----------------------------------------------------------------------------------------------------

    def results(self) -> dict[int, PartitionSchema]:
        """Return the schema of the result, by partition."""
        return {partition: self._content(partition, len(self.nodes)) for partition in self._partitions.given}

    def _content(self, partition: int, behind: int) -> PartitionSchema:
        """Return the schema of a partition after the first ``behind`` nodes."""
        content, _, blocks = self._partitions.given[partition]
        if not blocks:
            return _schema_of_empty(self.nodes[:behind], content)
        states = [self.states[block][behind] for block in blocks]
        return states[0].content(content, states)

    def finish(self) -> str:
        """Compute the steps and their launches; return why the requested fold cannot run in the workers, if it cannot.

        Raises
        ------
        PlanError
            If the partitions do not mean the same by a record, where that counts.
        """
        if self.requested.fold is not None:
            contents = [content for content in self.results().values() if content.count]
            self.fold = self.requested.fold.lower(contents) if contents else "there are no records"
            if isinstance(self.fold, str):
                return self.fold
        apart: set[int] = set()
        while True:
            try:
                self._steps(apart)
                return ""
            except CannotFuse as error:
                assert error.position not in apart
                apart.add(error.position)

    def _steps(self, apart: set[int]) -> None:
        self.slots = SlotTable()
        self.modules = ModuleTable(self.slots)
        self._made = LoweredSteps([messages.PutStep() if self.start is None else messages.LoadStep(0)],
                                  [[] for _ in self.states])
        if self.start is None and self.chain[0].cached:
            self._keep(self.chain[:1])
        self._made.stages = stages.stages(self.nodes, self.fold is not None, apart)
        for stage in self.stages:
            self._stage(stage)
            if self.nodes[stage.stop - 1].cached:
                self._keep(self.chain[:len(self.chain) - len(self.nodes) + stage.stop])
        if isinstance(self.fold, FoldStep | FoldByKeyStep) and not (self.stages and self.stages[-1].fold):
            self.steps.append(self.fold)
        if self.requested.table is not None:
            self.steps.append(self._table(self.requested.table))
        elif self.requested.keyed:
            slot = self._slots() + self.requested.others
            self.steps.extend([*self.requested.keyed, KeepKeyedStep(slot, self.requested.name)])
        elif self.fold is None and self.requested.fetch:
            self.steps.append(messages.FetchStep(self._limit(), self._unit() if self._limit() >= 0 else ""))

    def _table(self, layout: RecordLayout) -> Step:
        return KeepTableStep(self._slots(), self.requested.name, layout.parts[0].dtype.str, layout.encode(),
                             RecordLayout("elements", False, ()).encode())

    def _keep(self, chain: LogicalPlan) -> None:
        """Append the step that keeps the chain's result under the number in the next slot."""
        self.steps.append(messages.KeepStep(self._slots(), chain[-1].dataset.name, ops.place_of(chain)))

    def _slots(self) -> int:
        """Return the number of VRDDs that the steps so far name."""
        return sum(isinstance(step, messages.LoadStep | messages.KeepStep) for step in self.steps)

    def _limit(self) -> int:
        """Return the number of records to fetch: all, if partitions differ in what a record is, or rows in length."""
        ragged = any(states[-1].layout.ragged for states in self.states)
        return self.requested.limit if len(self.kinds) == 1 and not ragged else -1

    def _unit(self) -> str:
        return "rows" if self.kinds == {"elements"} else "blocks"

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Return the variants, each with its number of blocks."""
        counts = Counter(block for _, _, blocks in self._partitions.given.values() for block in blocks)
        return iter(counts.items())

    def traffic(self, variant: int) -> list[tuple[int, int]]:
        """Return the bytes that each launch reads and writes of a block of a variant."""
        traffic = []
        before = self.states[variant][0].signature
        launches = iter(self.launches[variant])
        for stage in self.stages:
            after = self.states[variant][stage.stop].signature
            if self.nodes[stage.first].op.has_launch and not is_dead(self, stage):
                launch = next(launches)
                fields = {each.name: each for each in before.fields} if before else {}
                read = {argument.field for argument in launch.arguments if isinstance(argument, messages.In)}
                traffic.append((sum(field_bytes(fields[name]) for name in read if name in fields),
                                sum(map(field_bytes, launch.outputs))))
            before = after
        return traffic

    def remarks(self) -> Iterator[str]:
        """Yield, for each call that finds nearest centres, why it is not computed by matrix work."""
        modules = self.modules.modules()
        for states, launches in zip(self.states, self.launches, strict=True):
            for node, state in zip(self.nodes, states, strict=False):
                if node.op.call is not None and state.signature is not None and state.layout.grid is None \
                        and not any(two_pass.is_matrix_work(modules[launch.module].source) for launch in launches):
                    reason = remark(node.op.call, state.layout, state.signature, self.shared_limit)
                    if reason:
                        yield f"{node.op} finds nearest centres row by row: {reason}"

    def folded_bytes(self, fold: FoldByKeyStep) -> int:
        """Return the bytes of a worker's fold by key: the folded fields, and the number of records of each key."""
        step = messages.MapFoldStep("", fold.fields, "key", fold.key, fold.groups)
        signature = next(states[-1].signature for states in self.states)
        assert signature is not None
        return 8 * fold.groups + sum(field_bytes(each) for each in folded_outputs(step, signature))

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the VRDDs in the plan's slots."""
        cached = [node.dataset.number for node in self._kept_nodes()]
        return tuple(cached) if self.start is None else (self.start.number, *cached)

    def _kept_nodes(self) -> Iterator[PlanNode]:
        first = self.chain[:1] if self.start is None else ()
        return (node for node in (*first, *self.nodes) if node.cached)

    def prepare(self, partitions: Sequence[int] | None = None, devices: Sequence[str] = ()) -> Executable:
        """Return the plan for some of the partitions; for all if none are named."""
        named = tuple(self._partitions.given) if partitions is None else tuple(partitions)
        key, encoded = sealed(self._plan(named, devices))
        cached = tuple({partition: self._content(partition, behind) for partition in named} for behind in self._kept())
        settled = tuple((origin, value_of(self.nodes, origin)) for origin in self.settled)
        retains = any(isinstance(step, messages.KeepStep) and step.place == "host" for step in self.steps)
        to_device = not retains and list(map(type, self.steps[:2])) == [messages.PutStep, messages.ToDeviceStep]
        return Executable(key, encoded, self.slots.origins(), settled, tuple(self._made.labels),
                          {partition: self._content(partition, len(self.nodes)) for partition in named}, cached,
                          self._limit(), retains, to_device)

    def _plan(self, partitions: Sequence[int], devices: Sequence[str]) -> Plan:
        return Plan(tuple(self.steps), tuple(self.modules.modules()), self._protocol_variants(),
                    tuple(self._inputs(partitions)), tuple(devices))

    def ship(self, devices: Sequence[str] = ()) -> Invocation:
        """Return the plan for all partitions, with the values in the chain."""
        self.finish()
        prepared = self.prepare(devices=devices)
        return Invocation(prepared, self.numbers(), prepared.values(self.nodes))

    def _kept(self) -> list[int]:
        """Return the numbers of nodes behind which something is kept."""
        first = [0] if self.start is None and self.chain[0].cached else []
        return first + [position + 1 for position, node in enumerate(self.nodes) if node.cached]

    def _protocol_variants(self) -> tuple[Variant, ...]:
        variants = []
        for (_, signature), number in self._partitions.variants.items():
            cached = [self.states[number][behind] for behind in self._kept()]
            variants.append(Variant(signature, tuple(self.launches[number]),
                                    tuple([state.layout.encode() for state in cached]),
                                    tuple([state.count for state in cached])))
        return tuple(variants)

    def _inputs(self, partitions: Sequence[int]) -> Iterator[Input]:
        for partition in partitions:
            content, offset, blocks = self._partitions.given[partition]
            yield Input(partition, content.count, content.keys, offset, content.layout.encode(), blocks,
                        content.positions)

    # -- one step -----------------------------------------------------------------------------------------------------

    def _stage(self, stage: FusedStage) -> None:
        op = self.nodes[stage.first].op
        if op.call is None:
            op.lower(self, stage.first)
        else:
            fuse(self, stage)

    def append(self, step: Step, label: str = "") -> None:
        """Append a step; ``label`` is its name in profiles, if it launches kernels."""
        self.steps.append(step)
        if label:
            self._made.labels.append(label)

    def on_device(self, step: Step | None = None, label: str = "") -> None:
        """Append a step that runs on the device, behind a copy to the device unless the last step is one."""
        if not isinstance(self.steps[-1], messages.ToDeviceStep):
            self.steps.append(messages.ToDeviceStep())
        if step is not None:
            self.append(step, label)

    def is_last(self, position: int) -> bool:
        """Return whether the result behind a position is fetched and nothing else."""
        return position + 1 == len(self.nodes) and self.requested.fetch and self.fold is None

    def only_kind(self, label: str) -> str:
        """Return the kind of the records of all partitions, "rows" or "blocks". Raises PlanError if they differ."""
        if len(self.kinds) > 1:
            raise PlanError("some partitions hold numbers or rows, others blocks of 2 or more dimensions, and "
                            f"{label} needs one kind of records", Place(operation=label))
        return self._unit()


def _schema_of_empty(nodes: LogicalPlan, content: PartitionSchema) -> PartitionSchema:
    """Return the schema of an empty partition after these operators."""
    layout = content.layout
    for node in nodes:
        layout = node.op.empty_layout(layout)
    return OperatorOutput(layout, None).content(content, ())
