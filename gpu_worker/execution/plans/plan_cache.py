"""Cache of decoded plans in a device process, by digest, with values derived from them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpu_worker.device.memory.registry import Registry
from gpu_worker.execution.launches.launch_table import LaunchTable
from gpu_worker.execution.passes.step_handlers import StepHandler
from gpu_worker.execution.plans.verification import slots_of, verify
from gpu_worker.execution.replay.recording import Recording
from gpu_worker.execution.replay.recordings import Recordings
from gpu_worker.execution.steps import handlers_of
from gpu_worker.protocol.codec import decode
from gpu_worker.protocol.errors import PlanUnknown, ProtocolError
from gpu_worker.protocol.messages import Plan
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
    steps : tuple of StepHandler
        Its steps, each with what is known of its kind.
    launches : LaunchTable
        Its launches, by step and variant.
    folds_all : bool
        Whether it folds all records into the reply.
    recordings : Recordings
        How it ran before.
    source : int
        The slot of the VRDD that it starts from; -1 where it brings records.
    keeps : bool
        Whether it keeps something.
    keeps_on_devices : bool
        Whether it keeps something on devices alone.
    branches : bool
        Whether its loop ends where its cells say.
    fills_ghosts : bool
        Whether it fills ghost cells.
    slots : int
        How many VRDDs a request has to bring.
    may_be_recorded : bool
        Whether it leaves nothing behind but what it keeps on devices, so that running it again is doing the same again.
    wave_sizes : int
        How many sizes of waves are too large for it among several nodes, the first of which is no waves at all.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.steps = steps = handlers_of(plan)
        verify(plan, steps)
        self.slots = slots_of(plan, steps)
        launching = [(step.step, not step.folds_all) for step in steps if step.has_launches]
        self.launches = LaunchTable(plan.variants, launching)
        self.folds_all = any(step.folds_all for step in steps)
        self.keeps = keeps = any(step.keeps for step in steps)
        self.keeps_on_devices = any(step.keeps and not step.leaves_host_memory for step in steps)
        self.recordings = Recordings(keeps=keeps, loops=keeps and any(step.is_loop for step in steps))
        self.source = steps[0].source if steps else -1
        self.branches = any(step.branches for step in steps)
        self.fills_ghosts = any(step.fills_ghosts for step in steps)
        replies = self.folds_all or any(step.fetches for step in steps)
        self.may_be_recorded = self.source >= 0 and not any(step.leaves_host_memory for step in steps) \
            and not (keeps and replies) and (not self.branches or _is_one_loop(steps))
        self.wave_sizes = 0


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
            decoded = self._known.get(key)
            if decoded is not None:
                self._known.move_to_end(key)
                return decoded
        if not encoded:
            raise PlanUnknown("the plan is not known here, and has to be sent along")
        if digest(encoded) != key:
            raise ProtocolError("a plan came under a digest that is not its own")
        prepared = DecodedPlan(decode(encoded, Plan))
        # One that brings records is unlikely to come again.
        if prepared.source >= 0:
            with self._lock:
                prepared = self._known.setdefault(key, prepared)
                gone = [self._known.popitem(last=False)[1]] if len(self._known) > KEPT_PLANS else []
            for plan in gone:
                self._close_all(plan.recordings.clear())
            if gone:
                self._forget_readers()
        return prepared

    def keep(self, plan: DecodedPlan, vrdd: int, recording: Recording) -> None:
        """Keep the recordings of a plan on a VRDD."""
        with self._lock:
            if recording.source is None:
                self._reading.setdefault(vrdd, set()).add((plan.recordings, recording.version))
            if recording.source is not None or recording.buffer_sets:
                self._loops[id(plan.recordings)] = plan.recordings
            if not recording.buffer_sets:
                self._held += recording.nbytes
        self._close_all(plan.recordings.add(recording))

    def release(self, vrdds: Sequence[int], names: Registry) -> None:
        """Drop the recordings of plans on released VRDDs, and the workspaces of loops that are over."""
        if not vrdds:
            return
        with self._lock:
            reading = [each for vrdd in vrdds for each in self._reading.pop(vrdd, ())]
            busy = {buffer_set for each in self._loops.values() if each.in_use(names)
                    for buffer_set in each.buffer_sets}
            over = [each for each in self._loops.values() if not each.in_use(names) and not each.reads(busy)]
            for plan in over:
                del self._loops[id(plan)]
        for recordings, version in reading:
            self._close_all(recordings.drop(version))
        for plan in over:
            self._close_all(plan.clear())

    @property
    def may_rest(self) -> bool:
        """Whether memory is held that :meth:`rest` would release."""
        return bool(self._loops) or self._held > RESTING_BYTES

    @property
    def is_not_full(self) -> bool:
        """Whether further recordings of actions may be made."""
        return self._held < ENOUGH_BYTES

    def rest(self, seconds: float) -> None:
        """Drop the recordings of loops that have been idle for some seconds, with their workspaces but not their
        values; and those of actions that have not run lately, least recently used first, until they hold little memory.
        """
        with self._lock:
            over = [each for each in self._loops.values() if time.monotonic() - each.used > seconds]
            for recordings in over:
                del self._loops[id(recordings)]
        for recordings in over:
            self._close_all(recordings.clear())
        self._rest_actions(seconds)

    def drop_idle_actions(self, seconds: float) -> None:
        """Drop the recordings of actions that have not run lately, as :meth:`rest` does, at most once in so many
        ``seconds``.
        """
        if time.monotonic() - self._counted > seconds:
            self._rest_actions(seconds)

    def _rest_actions(self, seconds: float) -> None:
        gone: list[Recording] = []
        with self._lock:
            self._counted = now = time.monotonic()
            idle = [(recording, plan.recordings) for plan in self._known.values()
                    for recording in plan.recordings.of_actions]
            self._held = sum([recording.nbytes for recording, _ in idle])
            for recording, recordings in sorted(idle, key=lambda each: each[0].used):
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


def _is_one_loop(steps: Sequence[StepHandler[Any]]) -> bool:
    """Return whether a plan that starts from what is held consists of a loop whose result is kept."""
    _, *following = [step for step in steps if not step.only_moves]
    return len(following) > 1 and following[0].is_loop and all(step.keeps for step in following[1:])
