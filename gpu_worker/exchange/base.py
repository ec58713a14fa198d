"""Interface of a joined world, whose exchange moves messages between the device processes of a session.

An exchange is one class beside this one that implements :class:`JoinedWorld`, and an entry in the table
:mod:`gpu_worker.protocol.exchange_kinds`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.protocol.errors import WorldLost
from gpu_worker.protocol.system import refused

#: Stages kept from one plan to the next; the one used least recently goes first.
KEPT = 16


@dataclass(frozen=True)
class MessageSpec:
    """Message of an exchange: its device here, its peer's rank, its tag and its bytes."""

    device: Device
    peer: int
    tag: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class MessageMemory:
    """Memory that a message leaves from or arrives in: the device's own, or else the host's, pinned for the device."""

    buffer: Buffer | None
    host: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Staged:
    """Messages of an exchange that can be moved again and again.

    Attributes
    ----------
    number : int
    sends, receives : tuple of MessageMemory
        Of each message, in the order of the parts.
    close : callable
        Gives the memory back.
    """

    number: int
    sends: tuple[MessageMemory, ...]
    receives: tuple[MessageMemory, ...]
    close: Callable[[], None]


@dataclass(frozen=True, eq=False)
class RecordedExchange:
    """Record of a plan's exchanges with other nodes, replayable when all nodes agree on the same ones.

    Attributes
    ----------
    world : JoinedWorld
    said : bytes
        What this rank said of its part.
    states : tuple of bytes
        What all did.
    stages : tuple of Staged
        What is moved.
    """

    world: JoinedWorld
    said: bytes
    states: tuple[bytes, ...]
    stages: tuple[Staged, ...]

    def holds(self, states: tuple[bytes, ...]) -> bool:
        """Return whether the same can be done, where all say this now."""
        return states == self.states and self.world.has(self.stages)


class JoinedWorld(ABC):
    """A world that this process has joined. Messages are moved by a thread of its own, one order after the other.

    Attributes
    ----------
    key : bytes
    rank, size : int
    sent : int
        The bytes that this node has sent.
    """

    def __init__(self, key: bytes, rank: int, size: int):
        self.key, self.rank, self.size = key, rank, size
        self.sent = 0
        self._stages: OrderedDict[tuple[Any, ...], Staged] = OrderedDict()
        #: What the present plan has staged, what all have said of it, and until when others are waited for.
        self._used: dict[Staged, None] = {}
        self._states: tuple[bytes, ...] = ()
        self._deadline = 0.0
        self._numbers = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="world")
        # There is a thread from now on: what is asked of it is never left in a queue.
        try:
            self._thread.submit(bool)
        except RuntimeError as error:
            raise refused(error, "a thread for a world") from error

    @property
    @abstractmethod
    def way(self) -> str:
        """What messages go by, for people."""

    def begin(self, deadline: float) -> None:
        """Begin a plan, which waits for other nodes until its deadline; may be repeated if the plan is begun in another
        way.
        """
        self._used, self._deadline = {}, deadline

    def end(self) -> None:
        """End the current plan: forget what the nodes agreed on for it."""
        self._states = ()

    def allgather_state(self, data: bytes) -> tuple[bytes, ...]:
        """Return the messages of all ranks about their parts of the present plan, gathered once in a plan."""
        if not self._states:
            self._states = self.gather(data)
        return self._states

    def exchange(self, message: bytes) -> RecordedExchange:
        """Return the record of the present plan's exchanges with other nodes."""
        return RecordedExchange(self, message, self._states, tuple(self._used))

    def has(self, stages: Sequence[Staged]) -> bool:
        """Return whether the stages are still registered, and mark them as used."""
        keys = {staged: key for key, staged in self._stages.items()}
        if any(staged not in keys for staged in stages):
            return False
        for staged in stages:
            self._stages.move_to_end(keys[staged])
        return True

    def gather(self, data: bytes) -> tuple[bytes, ...]:
        """Gather the data of all ranks, in their order.

        Raises
        ------
        WorldLost
            If a rank is gone, or does not answer until the plan's deadline.
        """
        return self.result(self._thread.submit(self._gather, data))

    def stage(self, sends: Sequence[MessageSpec], receives: Sequence[MessageSpec]) -> Staged:
        """Return a registered exchange; the same one for equal arguments."""
        key = tuple(sends), tuple(receives)
        if key not in self._stages:
            self._numbers += 1
            self._stages[key] = self._stage(self._numbers, *key)
        self._stages.move_to_end(key)
        self._used[self._stages[key]] = None
        return self._stages[key]

    def forget_old(self) -> None:
        """Forget the stages used least recently; called between plans, as a running plan uses all of its stages."""
        while len(self._stages) > KEPT:
            _, oldest = self._stages.popitem(last=False)
            oldest.close()

    def start(self, staged: Staged, ready: Callable[[], None]) -> Future[Any]:
        """Start a staged exchange in the background, once ``ready()`` returns."""
        return self._thread.submit(self._move, staged, ready)

    def result(self, future: Future[Any]) -> Any:
        """Wait for a future's result until the plan's deadline, or raise WorldLost."""
        try:
            return future.result(max(self._deadline - time.monotonic(), 0) + 1)
        except FutureTimeout:
            raise WorldLost(f"rank {self.rank} of {self.size} was not done at the plan's deadline") from None

    def close(self) -> None:
        """Leave; the world ends with that."""
        self.interrupt()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._disconnect()
        while self._stages:
            self._stages.popitem()[1].close()
        self._destroy()

    @abstractmethod
    def interrupt(self) -> None:
        """End the world while it is in use."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connections; the thread has ended, and the stages are given back after this."""

    def _destroy(self) -> None:
        """Free the memory of all stages."""

    @abstractmethod
    def _stage(self, number: int, sends: tuple[MessageSpec, ...], receives: tuple[MessageSpec, ...]) -> Staged:
        """Return the memory of an exchange, registered for the messages to move."""

    @abstractmethod
    def _gather(self, data: bytes) -> tuple[bytes, ...]:
        """Gather the data of all ranks, on the world's thread."""

    @abstractmethod
    def _move(self, staged: Staged, ready: Callable[[], None]) -> None:
        """Move a staged exchange's messages, on the world's thread."""
