"""Lowers a chain to one request for many partitions, and reads the reply.

What a plan means depends on what a block looks like, so it is worked out once for each layout and signature among the
partitions: the launches, and what the result will look like. Only numbers go to a worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np

from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import Input, Launch, Output, Run, Signature
from gpu_worker.protocol.payload import Data, aligned, block_bytes, field_bytes, field_offsets
from gpu_worker.protocol.plans import sealed
from vispark import plan, rewrite
from vispark.errors import LaunchError, Place, PlanError
from vispark.fold.inside import fold_inside
from vispark.launch import ExecSpec, resolve
from vispark.mapped import MapSpec, resolve_map
from vispark.plan import Cached, Chain
from vispark.records import Keyring, Layout, unpack, unpack_keys
from vispark.rewrite import Goal
from vispark.tables import ConstantTable, ModuleTable


@dataclass(frozen=True)
class Content:
    """What one partition's content looks like, wherever it is.

    Attributes
    ----------
    count : int
        Its records.
    keys : int
        The bytes of its keys' blob.
    layout : Layout
        How records are rebuilt.
    signatures : tuple of Signature
        One for each block.
    """

    count: int
    keys: int
    layout: Layout
    signatures: tuple[Signature, ...]

    @property
    def only(self) -> str:
        """As :attr:`Layout.only`."""
        return self.layout.only

    def records(self, keys: np.ndarray, blocks: Sequence[dict[str, np.ndarray]], keyring: Keyring) -> Iterator:
        """The records, from the keys' blob and the blocks' arrays."""
        if self.only == "keys":
            return iter(unpack_keys(keys.tobytes(), self.count, open=keyring.open))
        found = unpack(self.layout, self.count, keys.tobytes(), blocks, open=keyring.open)
        return found if self.only == "" else map(itemgetter(int(self.only)), found)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks and keys."""
        return self.keys + sum(field_bytes(each) for signature in self.signatures for each in signature.fields)


@dataclass(frozen=True)
class Outcome:
    """What a plan does to blocks of one layout and signature."""

    launches: tuple[Launch, ...]
    layout: Layout
    signature: Signature | None
    count: int
    kept: tuple[tuple[int, Outcome], ...]

    def apply(self, content: Content, others: Sequence[Outcome]) -> Content:
        """What a partition's content becomes; ``others`` are the outcomes of all its blocks."""
        keyed = self.layout.keyed or self.layout.only == "keys"
        signatures = tuple(outcome.signature for outcome in others if outcome.signature is not None)
        return Content(content.count if self.count < 0 else self.count, content.keys if keyed else 0, self.layout,
                       signatures)


@dataclass
class Lowered:
    """A chain on its way to becoming a request.

    Parameters
    ----------
    chain : Chain
        From its send.
    start : Cached or None
        What workers hold, or None to start from records in a payload.
    goal : Goal
        What is wanted.
    """

    chain: Chain
    start: Cached | None
    goal: Goal
    inputs: list[Input] = field(default_factory=list)
    results: dict[int, Content] = field(default_factory=dict)
    kept: dict[int, dict[int, Content]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = rewrite.after_start(self.chain, self.start)
        self.constants = ConstantTable()
        self.modules = ModuleTable(self.constants)
        self.steps, self.vrdds = rewrite.steps(self.chain, self.start, self.goal)
        self._variants: dict[tuple[Layout, Signature], int] = {}
        self._outcomes: list[Outcome] = []
        #: What the partitions mean by a record, and mean by it to the end.
        self._kinds: set[str] = set()

    def add(self, partition: int, content: Content, offset: int = 0) -> None:
        """Add a partition.

        Raises
        ------
        LaunchError
            If a kernel's geometry or arguments do not fit its blocks.
        """
        try:
            blocks = tuple([self._variant(content.layout, signature) for signature in content.signatures])
        except PlanError as error:
            vrdd = str(self.start) if self.start else plan.name_of(self.chain)
            raise error.at(vrdd=vrdd, partition=partition) from error.__cause__
        self.inputs.append(Input(partition, content.count, content.keys, offset, content.layout.encode(), blocks))
        outcomes = [self._outcomes[block] for block in blocks]
        if not outcomes:
            outcome = _through_nothing(self.nodes, content.layout)
            self.results[partition] = outcome.apply(content, ())
            for number in self.numbers():
                self.kept.setdefault(number, {})[partition] = self.results[partition]
            return
        self._kinds.add(content.layout.kind)
        self.results[partition] = outcomes[0].apply(content, outcomes)
        for position, (number, outcome) in enumerate(outcomes[0].kept):
            others = [each.kept[position][1] for each in outcomes]
            self.kept.setdefault(number, {})[partition] = outcome.apply(content, others)

    def numbers(self) -> Iterator[int]:
        """The numbers of the VRDDs that the plan keeps, in order."""
        return (self.vrdds[step.slot] for step in self.steps if isinstance(step, messages.Keep))

    def request(self, number: int, epoch: int, seconds: float, *, offset: int = 0,
                devices: Sequence[str] = ()) -> tuple[Run, int]:
        """The request, and the bytes that its array arguments need in the payload from ``offset``."""
        constants, size = self.constants.constants(offset)
        steps = tuple([self._settled(step) for step in self.steps])
        variants = [messages.Variant(signature, outcome.launches,
                                     tuple([kept.layout.encode() for _, kept in outcome.kept]),
                                     tuple([kept.count for _, kept in outcome.kept]))
                    for (_, signature), outcome in zip(self._variants, self._outcomes, strict=True)]
        key, encoded = sealed(messages.Plan(steps, self.modules.modules(), tuple(variants), tuple(self.inputs),
                                            tuple(devices)))
        return Run(number, epoch, seconds, key, encoded, self.vrdds, constants), size

    def labels(self) -> list[str]:
        """What errors call the steps that launch kernels."""
        return [step.label for step in self.steps
                if isinstance(step, messages.Exec | messages.MapFold | messages.FoldInside)]

    def partitions(self) -> list[int]:
        """The partitions of the request."""
        return [part.partition for part in self.inputs]

    def records(self, output: Output, payload: Data, keyring: Keyring) -> Iterator:
        """The records of a fetched partition."""
        content = _limited(self.results[output.partition], self._fetch().limit)
        offset = output.offset
        keys = payload.view(offset, output.keys) if output.keys else np.empty(0, np.uint8)
        offset += aligned(output.keys)
        blocks = []
        for signature in content.signatures:
            blocks.append({described.name: payload.field(described, start)
                           for described, start in field_offsets(signature, offset)})
            offset += block_bytes(signature)
        return content.records(keys, blocks, keyring)

    def _settled(self, step: messages.Step) -> messages.Step:
        """A step with what is known only now: what the partitions mean by a record."""
        match step:
            case messages.Fetch():
                return self._fetch()
            case messages.FoldInside():
                if len(self._kinds) > 1:
                    raise PlanError("some partitions hold numbers or rows, others blocks of 2 or more dimensions, and "
                                    f"{step.label} needs one kind of records", Place(operation=step.label))
                return replace(step, over=_over(self._kinds))
        return step

    def _fetch(self) -> messages.Fetch:
        """The fetch, limited where all partitions mean the same by a record."""
        if self.goal.limit < 0 or len(self._kinds) != 1:
            return messages.Fetch(-1, "")
        return messages.Fetch(self.goal.limit, _over(self._kinds))

    def _variant(self, layout: Layout, signature: Signature) -> int:
        key = layout, signature
        if key not in self._variants:
            self._outcomes.append(self._outcome(layout, signature))
            self._variants[key] = len(self._outcomes) - 1
        return self._variants[key]

    def _outcome(self, layout: Layout, signature: Signature) -> Outcome:
        state = Outcome((), layout, signature, -1, ())
        if self.start is None and self.chain[0].cached:
            state = replace(state, kept=((self.chain[0].cached.number, state),))
        for node in self.nodes:
            state = self._after(state, node)
            if node.cached:
                state = replace(state, kept=(*state.kept, (node.cached.number, replace(state, kept=()))))
        return state

    def _after(self, state: Outcome, node: plan.Node) -> Outcome:
        match node.op:
            case plan.Exec(spec):
                return self._after_exec(state, spec)
            case plan.Map(spec):
                return self._after_map(state, spec)
            case plan.FoldInside(spec):
                before = _blocks(state, str(node.op))
                signature, layout = fold_inside(spec, state.layout, before, str(node.op))
                return replace(state, layout=layout, signature=signature)
            case plan.Keys() | plan.Values() if state.layout.only:
                raise _stays_on_host(node.op)
            case plan.Keys() if state.layout.keyed:
                return replace(state, layout=replace(state.layout, only="keys"), signature=None)
            case plan.Values() if state.layout.keyed:
                return replace(state, layout=state.layout.values())
            case plan.Keys() | plan.Values():
                only = "0" if isinstance(node.op, plan.Keys) else "1"
                return replace(state, layout=replace(state.layout, only=only))
        return state

    def _after_map(self, state: Outcome, spec: MapSpec) -> Outcome:
        before = _blocks(state, spec.label)
        launch, signature, layout = resolve_map(spec, state.layout, before, self.constants, self.modules)
        return replace(state, launches=(*state.launches, launch), layout=layout, signature=signature)

    def _after_exec(self, state: Outcome, spec: ExecSpec) -> Outcome:
        _blocks(state, spec.label)
        launch, signature, merge = resolve(spec, state.signature, self.constants)
        layout = state.layout.after(launch.outputs, merge=merge, as_input=spec.out is None)
        count = state.count
        if layout.kind == "elements":
            count = _stack_height(spec, state.signature, signature, layout.keyed)
        module = self.modules.add(spec.kernel.kernels)
        launches = *state.launches, replace(launch, merge=merge, module=module, kernel=spec.kernel.name)
        return replace(state, launches=launches, layout=layout, signature=signature, count=count)


def _over(kinds: set[str]) -> str:
    return "rows" if kinds == {"elements"} else "blocks"


def _stays_on_host(op: plan.Op) -> PlanError:
    return PlanError(f"{op} works on blocks, and what keys() gave, or an item of a record, stays on the host: call "
                     ".recv() before it")


def _blocks(state: Outcome, label: str) -> Signature:
    if state.layout.only or state.signature is None:
        raise PlanError("a kernel needs blocks, and here keys() or values() of records that are no pairs left none",
                        Place(operation=label))
    return state.signature


def _stack_height(spec: ExecSpec, before: Signature, after: Signature, keyed: bool) -> int:
    """The records in a stack of elements: the leading extent, which all its fields share."""
    heights = {described.shape[:1] for described in after.fields}
    if len(heights) > 1 or () in heights:
        shapes = ", ".join(f"{described.name or 'out'} {described.shape}" for described in after.fields)
        raise LaunchError(f"the records of a partition are one stack, and all its fields need the same leading extent; "
                          f"out= gives {shapes}", Place(operation=spec.label), f"  called at {spec.where}")
    height = heights.pop()[0]
    was = before.fields[0].shape[0]
    if keyed and height != was:
        raise LaunchError(f"out= makes {height} records of {was} pairs, and their keys would be lost: call .values() "
                          "first, or keep the leading extent", Place(operation=spec.label),
                          f"  called at {spec.where}")
    return height


def _limited(content: Content, limit: int) -> Content:
    """What the first ``limit`` records look like; pairs come whole."""
    if limit < 0 or limit >= content.count or content.layout.keyed or content.only == "keys":
        return content
    if content.layout.kind == "blocks":
        return replace(content, count=limit, signatures=content.signatures[:limit])
    signatures = tuple(Signature(tuple(replace(described, shape=(limit, *described.shape[1:]))
                                       for described in signature.fields)) for signature in content.signatures)
    return replace(content, count=limit, signatures=signatures)


def _through_nothing(nodes: Chain, layout: Layout) -> Outcome:
    """What a plan does to a partition without blocks: nothing, but keys and values still say what comes back."""
    for node in nodes:
        if layout.only and not isinstance(node.op, plan.ToDevice | plan.ToHost):
            raise _stays_on_host(node.op)
        if isinstance(node.op, plan.Keys) and layout.keyed:
            layout = replace(layout, only="keys")
        elif isinstance(node.op, plan.Values):
            layout = layout.values()
    return Outcome((), layout, None, -1, ())
