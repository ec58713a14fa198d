"""Workers in threads of this process that are the nodes of one world."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_worker.exchange.base import JoinedWorld, MessageMemory, MessageSpec, Staged
from gpu_worker.protocol.errors import WorldLost
from gpu_worker.protocol.grids import World
from tests.unit.plans import Bench, bench

DEVICE = os.environ.get("VISPARK_TEST_DEVICE", "host")


class Meeting:
    """Meeting point of the nodes of a world: what each brought, once all have."""

    def __init__(self, size: int):
        self._barrier = threading.Barrier(size, timeout=20)
        self._brought: dict[int, Any] = {}

    def wait_for_ranks(self, rank: int, brought: Any) -> list[Any]:
        """Bring something, and return what all brought."""
        try:
            self._brought[rank] = brought
            self._barrier.wait()
            all_brought = [self._brought[each] for each in sorted(self._brought)]
            self._barrier.wait()
        except threading.BrokenBarrierError as error:
            raise WorldLost("a node is gone") from error
        return all_brought

    def end(self) -> None:
        """Let nobody wait."""
        self._barrier.abort()


class ThreadWorld(JoinedWorld):
    """World of nodes that are threads of one process."""

    way = "threads"

    def __init__(self, meeting: Meeting, wanted: World, size: int):
        super().__init__(wanted.key, wanted.rank, size)
        self._meeting = meeting
        self._peers: dict[int, int] = {}

    def interrupt(self) -> None:
        self._meeting.end()

    def _disconnect(self) -> None:
        pass

    def _stage(self, number: int, sends: tuple[MessageSpec, ...], receives: tuple[MessageSpec, ...]) -> Staged:
        memory = [tuple([MessageMemory(None, np.empty(spec.nbytes, np.uint8)) for spec in specs])
                  for specs in (sends, receives)]
        for specs, kept in zip((sends, receives), memory, strict=True):
            self._peers |= {id(each): spec.peer for spec, each in zip(specs, kept, strict=True)}
        return Staged(number, memory[0], memory[1], lambda: None)

    def _gather(self, data: bytes) -> tuple[bytes, ...]:
        return tuple(self._meeting.wait_for_ranks(self.rank, data))

    def _move(self, staged: Staged, ready: Callable[[], None]) -> None:
        ready()
        sent = {self._peers[id(each)]: each.host.copy() for each in staged.sends}
        received = self._meeting.wait_for_ranks(self.rank, sent)
        for message in staged.receives:
            message.host[:] = received[self._peers[id(message)]][self.rank]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., list[Bench]]]:
    """Yield a maker of workers, each with options and a place of its own."""
    with ExitStack() as stack:
        def make(*options: dict[str, Any]) -> list[Bench]:
            workers = []
            for own in options:
                path = tmp_path / str(len(list(tmp_path.iterdir())))
                path.mkdir()
                workers.append(stack.enter_context(bench(path, DEVICE, **own)))
            return workers
        yield make
