"""Interface of the handlers of a plan's steps, and their registry.

A handler is one step of a plan with all that the worker knows of it: what is right for it, what it does with
partitions, what it needs and leaves, and what errors and times call it. There is one class for each kind of step, in
:mod:`gpu_worker.execution.steps`, and nothing else in the worker asks which kind a step is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from gpu_worker.device.memory.partition import Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.execution.passes.grid_planes import GridByPlanes
from gpu_worker.execution.passes.run_context import BlockForm, RunContext
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Field, Input, KeepStep, Launch, Plan, Step
from gpu_worker.protocol.plans import KeepKeyedStep, KeepTableStep

StepMessage = TypeVar("StepMessage", bound=Step)
_Handler = TypeVar("_Handler", bound="StepHandler[Any]")

#: Rows before which a block may be cut, ascending from 0.
Cuts = Sequence[int]
#: Runs a step on a grid's blocks in host memory, and returns its values.
ByPlanes = Callable[[RunContext, GridByPlanes, list[Partition]], list[Partition]]

_HANDLERS: dict[type, type[StepHandler[Any]]] = {}


class WavePasses(Protocol):
    """Interface of a step's passes over all partitions of a plan, wave by wave."""

    def passes(self) -> Iterator[Callable[[list[Partition]], None]]:
        """Yield a function for each pass, which takes one wave after the other."""

    def made(self) -> list[Partition]:
        """Return the partitions that the step made, once all passes are done; they are the caller's."""


class StepHandler(Generic[StepMessage]):
    """Handler of one step of a plan; a subclass says what differs from a step that does nothing.

    Parameters
    ----------
    step : StepMessage
        The step as it came.

    Attributes
    ----------
    number : int
        Its place among the plan's steps that keep something.
    """

    #: Whether the request brings the records that it starts from.
    brings_records = False
    #: Whether each variant of the plan has a launch for it.
    has_launches = False
    #: Whether it keeps a value under a number.
    keeps = False
    #: Whether it returns records.
    fetches = False
    #: The most records of a partition that it returns; below 0 for all.
    limit = -1
    #: Whether it repeats others, and is likely to come again.
    is_loop = False
    #: Whether it does nothing but copy to the device.
    only_moves = False
    #: Whether it fills ghost cells, and may wait for other nodes.
    fills_ghosts = False
    #: Whether it has its values copied to their devices.
    on_device = False
    #: Whether it takes each of a partition's blocks by itself, so that it may be given some of them at a time.
    by_blocks = False
    #: Whether what it leaves of a partition's pieces is one record, behind the last of them.
    joins_pieces = False
    #: Whether it may be given a partition's rows in ranges of their keys, one after the other and each whole.
    by_ranges = False
    #: What its devices' time is counted as in :class:`~gpu_worker.protocol.messages.Times`.
    timed_as = "kernels"

    def __init__(self, step: StepMessage):
        self.step = step
        self.number = 0

    # -- what is known of it before it runs ---------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of its kind."""
        return type(self.step).__name__.removesuffix("Step")

    @property
    def label(self) -> str:
        """What errors call it: the label that it came with, or else the name of its kind."""
        label: str = getattr(self.step, "label", "") or self.name.lower()
        return label

    @property
    def vrdds(self) -> tuple[int, ...]:
        """The slots of the VRDDs that it reads or keeps."""
        return ()

    @property
    def source(self) -> int:
        """The slot of the VRDD that it starts from; -1 if it starts from none."""
        return -1

    @property
    def folds_all(self) -> bool:
        """Whether it folds all records into the reply."""
        return False

    @property
    def in_any_order(self) -> bool:
        """Whether partitions may come to it in another order, and what it leaves is the same to the bit."""
        return False

    @property
    def branches(self) -> bool:
        """Whether it ends where the data says."""
        return False

    @property
    def leaves_host_memory(self) -> bool:
        """Whether it makes or keeps something in host memory, which no replay does again."""
        return False

    @property
    def blocks(self) -> BlockForm:
        """The form in which it takes the blocks of a grid."""
        return BlockForm.CONTIGUOUS

    def dataset(self, names: Registry, vrdds: Sequence[int]) -> str:
        """Return the name of the VRDD that it reads or keeps, for errors; empty if there is none."""
        return ""

    def verify(self, plan: Plan) -> None:
        """Verify the step of a plan, whose launches are verified by others. Raises PlanError if it cannot be run."""

    def verify_launch(self, launch: Launch) -> None:
        """Verify that a variant's launch for the step fits it. Raises PlanError if it does not."""

    def fields_after(self, fields: Sequence[Field], launch: Launch | None) -> Sequence[Field]:
        """Return the fields of a block after the step, of those before; ``launch`` is the step's for the block's
        variant, if it has any.
        """
        return fields

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        """Return the rows before which a partition's only block may be cut, as the step takes one piece after the other
        and leaves the same bits; none if it takes the block as a whole.

        Parameters
        ----------
        fields : sequence of Field
            The block's, before the step.
        launch : Launch or None
            The step's for the block's variant, if it has any.
        works : callable
            Gives the first rows of the works that the block is dealt to (int64).
        """
        return ()

    def in_passes(self, context: RunContext, values: Sequence[Partition]) -> WavePasses | None:
        """Return the passes over all partitions of a plan by which the step makes others of all, wave by wave; None for
        a step that takes each wave once.
        """
        return None

    def ranging(self, value: Partition, most: int) -> StepHandler[Any] | None:
        """Return the step that puts a partition's rows into ranges of their keys, each of which this step takes in
        ``most`` bytes of device memory, if keys allow it; None where it takes all rows in that.
        """
        return None

    @property
    def by_planes(self) -> ByPlanes | None:
        """How it runs on a grid whose blocks stay in host memory, by planes of them; None where it cannot."""
        return None

    # -- what it does -------------------------------------------------------------------------------------------------

    def start(self, context: RunContext, part: Input) -> Partition:
        """Return the value of a partition that the plan starts from.

        Raises
        ------
        PlanError
            If no plan starts with such a step.
        """
        raise PlanError(f"a plan starts with Put or Load, not with {self.name}")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        """Run the step on the values of the step before, and return its values.

        Raises
        ------
        PlanError
            If such a step can only start a plan.
        """
        raise PlanError(f"{self.name} can only start a plan")

    def keep_fold(self, context: RunContext) -> bool:
        """Keep what the plan folded, if this step is to; return whether it is, as the reply has none of it then."""
        return False


def every_row(fields: Sequence[Field]) -> Cuts:
    """Return cuts before every row of a block, whose fields have one each; none if they have not."""
    rows = {each.shape[0] if each.shape else -1 for each in fields}
    return range(rows.pop()) if len(rows) == 1 and min(rows) >= 0 else ()


_Keep = TypeVar("_Keep", KeepStep, KeepKeyedStep, KeepTableStep)


class KeepingHandler(StepHandler[_Keep]):
    """Base of the handlers of steps that keep something under the number in a slot of the request."""

    @property
    def vrdds(self) -> tuple[int, ...]:
        return (self.step.slot,)

    @property
    def leaves_host_memory(self) -> bool:
        return True

    def dataset(self, names: Registry, vrdds: Sequence[int]) -> str:
        return f"{vrdds[self.step.slot]} {self.step.name}".strip()


def handles(message: type[Step]) -> Callable[[type[_Handler]], type[_Handler]]:
    """Return a decorator that registers a class as the handler of the steps of one kind.

    Parameters
    ----------
    message : type
        The step's class in the protocol.
    """
    def registered(handler: type[_Handler]) -> type[_Handler]:
        assert message not in _HANDLERS, f"two handlers of {message.__name__}"
        _HANDLERS[message] = handler
        return handler

    return registered


def handler_of(step: Step) -> StepHandler[Any]:
    """Return the handler of a step.

    Raises
    ------
    PlanError
        If this worker has none; the message lists the kinds of steps that it has.
    """
    handler = _HANDLERS.get(type(step))
    if handler is None:
        names = ", ".join(sorted(each.__name__.removesuffix("Step") for each in _HANDLERS))
        raise PlanError(f"this worker runs no step {type(step).__name__.removesuffix('Step')}; it runs {names}")
    return handler(step)
