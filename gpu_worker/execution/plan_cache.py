"""Cache of decoded plans in a device process, by digest, with values derived from them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gpu_worker.execution.replay import Recording, Recordings
from gpu_worker.execution.verification import slots_of, verify
from gpu_worker.memory.registry import Registry
from gpu_worker.protocol.codec import decode
from gpu_worker.protocol.errors import PlanUnknown, ProtocolError
from gpu_worker.protocol.grids import ExchangeStep, IterateStep, StencilStep
from gpu_worker.protocol.messages import (
    ExecStep,
    FetchStep,
    FoldByKeyStep,
    FoldInsideStep,
    FoldStep,
    KeepStep,
    Launch,
    LoadStep,
    MapFoldStep,
    Plan,
    PutStep,
    Step,
    ToDeviceStep,
    ToHostStep,
)
from gpu_worker.protocol.plans import KEPT_PLANS, digest

#: The device memory, in bytes, that recordings of actions go on holding which rest, all together; and from how much on
#: that all of them hold no further ones are made.
RESTING_BYTES = 16 << 20
ENOUGH_BYTES = 2 << 30


class DecodedPlan:
    """Plan with values that are derived from it once.

    Attributes
    ----------
    plan : Plan
        As it came.
    positions : dict of int to int
        The place of each step with a launch, and of each Keep, among its like, by the step's identity.
    fold : FoldStep, FoldByKeyStep, MapFoldStep or None
        The step that folds all records into the reply.
    recordings : Recordings
        How it ran before.
    source : int
        The slot of the VRDD that it starts from; -1 where it brings records.
    keeps : bool
        Whether it keeps something.
    branches : bool
        Whether its loop ends where its cells say.
    slots : int
        How many VRDDs a request has to bring.
    may_be_recorded : bool
        Whether it leaves nothing behind but what it keeps on devices, so that running it again is doing the same again.
    """

    def __init__(self, plan: Plan):
        verify(plan)
        self.plan = plan
        self.slots = slots_of(plan)
        self.positions = {id(step): position for kinds in ((ExecStep, MapFoldStep), (KeepStep,)) for position,
                          step in enumerate(
            step for step in plan.steps if isinstance(step, kinds))}
        self.fold = next((step for step in plan.steps if isinstance(step, FoldStep | FoldByKeyStep)
                          or (isinstance(step, MapFoldStep) and step.how != "inside")), None)
        self.keeps = keeps = any(isinstance(step, KeepStep) for step in plan.steps)
        loops = any(isinstance(step, IterateStep) for step in plan.steps)
        self.recordings = Recordings(keeps=keeps, loops=keeps and loops)
        first = plan.steps[0] if plan.steps else None
        self.source = first.slot if isinstance(first, LoadStep) else -1
        self.branches = any(isinstance(step, IterateStep) and (step.until >= 0 or step.check > 0)
                            for step in plan.steps)
        self.may_be_recorded = self.source >= 0 and not any(
            isinstance(step, ToHostStep) or (isinstance(step, KeepStep) and step.place != "device")
            or (keeps and (self.fold or isinstance(step, FetchStep))) for step in plan.steps) and (
            not self.branches or _is_one_loop(plan.steps))
        self._groups: dict[tuple[int, int], int] = {}
        self._alike: dict[tuple[int, Launch], int] = {}

    def launch(self, step: Step, variant: int) -> Launch:
        """Return the launch of a step on blocks of a variant."""
        return self.plan.variants[variant].launches[self.positions[id(step)]]

    def group(self, step: ExecStep | MapFoldStep, variant: int) -> int:
        """Return the number of a variant's group: a step's kernel may run over blocks of all variants of a group in one
        launch.
        """
        key = id(step), variant
        if key not in self._groups:
            launch = self.launch(step, variant)
            if isinstance(step, ExecStep) or step.how == "inside":
                launch = replace(launch, outputs=tuple(replace(each, shape=()) for each in launch.outputs))
            self._groups[key] = self._alike.setdefault((id(step), launch), len(self._alike))
        return self._groups[key]


def label(step: Step) -> str:
    """Return the name of a step for errors."""
    match step:
        case ExecStep() | FoldInsideStep() | MapFoldStep() | ExchangeStep() | StencilStep() | IterateStep():
            return step.label
        case FoldStep(fields) | FoldByKeyStep(_, _, fields):
            return " and ".join(dict.fromkeys(f"fold {each.operator}" for each in fields))
    return type(step).__name__.removesuffix("Step").lower()


class DecodedPlans:
    """Cache of a session's recently used plans.

    Parameters
    ----------
    close : callable
        Closes a recording that is of no more use.
    """

    def __init__(self, close: Callable[[Recording], None]):
        self._known: OrderedDict[bytes, DecodedPlan] = OrderedDict()
        #: Recordings, with a version of what they read, by its number; and those of loops.
        self._reading: dict[int, set[tuple[Recordings, int]]] = {}
        self._loops: dict[int, Recordings] = {}
        #: The most that recordings of actions hold, in bytes; and when that was last counted.
        self._held = 0
        self._counted = time.monotonic()
        self._close = close
        self._lock = threading.Lock()

    def get(self, key: bytes, encoded: bytes) -> DecodedPlan:
        """Return the plan of a digest, decoding ``encoded`` unless it is empty.

        Raises
        ------
        PlanUnknown
            If it is not known and was not brought.
        ProtocolError
            If what was brought is no plan, or has another digest.
        PlanError
            If it cannot be run.
        """
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        if not encoded:
            raise PlanUnknown("the plan is not known here, and has to be sent along")
        if digest(encoded) != key:
            raise ProtocolError("a plan came under a digest that is not its own")
        prepared = DecodedPlan(decode(encoded, Plan))
        if not _once(prepared.plan.steps):
            with self._lock:
                prepared = self._known.setdefault(key, prepared)
                gone = [self._known.popitem(last=False)[1]] if len(self._known) > KEPT_PLANS else []
            for each in gone:
                self._close_all(each.recordings.clear())
            if gone:
                self._forget_readers()
        return prepared

    def keep(self, plan: DecodedPlan, vrdd: int, recording: Recording) -> None:
        """Keep the recordings of a plan on a VRDD."""
        with self._lock:
            if recording.source is None:
                self._reading.setdefault(vrdd, set()).add((plan.recordings, recording.version))
            if recording.source is not None or recording.rooms:
                self._loops[id(plan.recordings)] = plan.recordings
            if not recording.rooms:
                self._held += recording.nbytes
        self._close_all(plan.recordings.add(recording))

    def release(self, vrdds: Sequence[int], names: Registry) -> None:
        """Drop the recordings of plans on released VRDDs, and the workspaces of loops that are over."""
        if not vrdds:
            return
        with self._lock:
            reading = [each for vrdd in vrdds for each in self._reading.pop(vrdd, ())]
            busy = {room for each in self._loops.values() if each.in_use(names) for room in each.rooms}
            over = [each for each in self._loops.values() if not each.in_use(names) and not each.reads(busy)]
            for each in over:
                del self._loops[id(each)]
        for recordings, version in reading:
            self._close_all(recordings.drop(version))
        for each in over:
            self._close_all(each.clear())

    @property
    def may_rest(self) -> bool:
        """Whether memory is held that :meth:`rest` would release."""
        return bool(self._loops) or self._held > RESTING_BYTES

    @property
    def has_room(self) -> bool:
        """Whether further recordings of actions may be made."""
        return self._held < ENOUGH_BYTES

    def rest(self, seconds: float) -> None:
        """Drop the recordings of loops that have been idle for some seconds, with their workspaces but not their
        values; and those of actions that have not run lately, least recently used first, until they hold little memory.
        """
        with self._lock:
            over = [each for each in self._loops.values() if time.monotonic() - each.used > seconds]
            for each in over:
                del self._loops[id(each)]
        for each in over:
            self._close_all(each.clear())
        self._rest_actions(seconds)

    def tidy(self, seconds: float) -> None:
        """Drop the recordings of actions that have not run lately, as :meth:`rest` does, at most once in so many
        ``seconds``.
        """
        if time.monotonic() - self._counted > seconds:
            self._rest_actions(seconds)

    def _rest_actions(self, seconds: float) -> None:
        gone: list[Recording] = []
        with self._lock:
            self._counted = now = time.monotonic()
            found = [(recording, plan.recordings) for plan in self._known.values()
                     for recording in plan.recordings.of_actions]
            self._held = sum([recording.nbytes for recording, _ in found])
            for recording, recordings in sorted(found, key=lambda each: each[0].used):
                if self._held <= RESTING_BYTES or now - recording.used <= seconds:
                    break
                if not recording.lock.locked():
                    self._held -= recording.nbytes
                    gone += recordings.discard(recording)
        self._close_all(gone)
        if gone:
            self._forget_readers()

    def _forget_readers(self) -> None:
        """Drop references to recordings that are gone."""
        with self._lock:
            for vrdd, reading in list(self._reading.items()):
                reading.intersection_update([each for each in reading if each[0].has(each[1])])
                if not reading:
                    del self._reading[vrdd]

    def forget(self) -> bool:
        """Drop the recordings of all plans, which frees memory; return whether there were any."""
        with self._lock:
            plans = list(self._known.values())
            self._reading.clear()
            self._loops.clear()
            self._held = 0
        gone = [recording for plan in plans for recording in plan.recordings.clear()]
        self._close_all(gone)
        return bool(gone)

    def _close_all(self, recordings: Iterable[Recording]) -> None:
        for recording in recordings:
            self._close(recording)


def _is_one_loop(steps: Sequence[Step]) -> bool:
    """Return whether a plan consists of a loop whose result is kept."""
    kinds = [type(step) for step in steps if not isinstance(step, ToDeviceStep)]
    return kinds[:2] == [LoadStep, IterateStep] and len(kinds) > len((LoadStep,
                                                                      IterateStep)) and set(kinds[2:]) == {KeepStep}


def _once(steps: Sequence[Step]) -> bool:
    """Return whether a plan is unlikely to be repeated, as one that brings records."""
    return not steps or isinstance(steps[0], PutStep) or not isinstance(steps[0], LoadStep)
