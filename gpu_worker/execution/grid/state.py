"""State of grids that a device process keeps from one plan to the next."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gpu_worker.device.base import Device
from gpu_worker.device.memory.grid.patches import Domain
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.protocol import exchange_kinds
from gpu_worker.protocol.errors import PartitionMissing, PlanUnknown, VisparkError, WorldLost
from gpu_worker.protocol.grids import GridShape
from gpu_worker.protocol.grids import World as Wanted

#: Domains kept; the one used least recently goes first.
KEPT = 16

_UNMADE = 64

#: Ends of worlds that were opened, and that no plan has joined yet; the oldest goes first.
_OPENED = 4

#: How much sooner than kernels that still run are taken for stuck a plan gives up other nodes, in seconds.
_SOONER = 1.0


class TakenByPlanes(Exception):
    """Another node's blocks stay in host memory, of which steps take planes, and so they are to do here."""


class Grids:
    """State of a session's grids: domains, patches, and the MPI world.

    Ghost cells are filled in place, in memory that several plans may have, so plans that do so take turns.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._domains: OrderedDict[tuple[Any, ...], Domain] = OrderedDict()
        self._world: JoinedWorld | None = None
        self._opened: OrderedDict[bytes, Any] = OrderedDict()
        self._opening = threading.Lock()
        self._turned = threading.Condition()
        #: The next turn in each world of which a plan has had its turn.
        self._next: dict[bytes, int] = {}
        #: The last worlds that have lost a worker.
        self._ended: deque[bytes] = deque(maxlen=KEPT)
        #: What no worker of a world has, as the plan that was to make it failed on all; the last of it.
        self._unmade: deque[tuple[bytes, int]] = deque(maxlen=_UNMADE)

    def turns(self, *, fills_ghosts: bool) -> AbstractContextManager[object]:
        """Return a context that excludes other plans that fill ghost cells, for one that does; else an empty one."""
        return self._turn if fills_ghosts else nullcontext()

    def domain(self, grid: GridShape, owners: Mapping[int, Device], world: JoinedWorld | None = None
               ) -> Domain:
        """Return the domain of blocks, given by their numbers, on devices; computed once.

        In a ``world`` all ranks must ask for it in the same plan.

        Raises
        ------
        TakenByPlanes
            If another rank has asked by :meth:`by_planes`.
        """
        key = grid, tuple(sorted((number, device.name) for number, device in owners.items()))
        domain = self._known(key, lambda: Domain.of(grid, owners))
        if world is None:
            return domain
        described = world.allgather_state(domain.described())
        among = self._known((*key, described), lambda: domain.with_ranks(described))
        if any(among.by_planes):
            raise TakenByPlanes
        return among

    @staticmethod
    def by_planes(grid: GridShape, numbers: Iterable[int], device: Device, world: JoinedWorld) -> Domain:
        """Return the domain of blocks of which steps take planes, as :meth:`domain` does; its boxes of cells are the
        same for any number of devices.
        """
        domain = Domain.of(grid, dict.fromkeys(numbers, device))
        return domain.with_ranks(world.allgather_state(domain.described(by_planes=True)))

    def _known(self, key: tuple[Any, ...], make: Callable[[], Domain]) -> Domain:
        if key not in self._domains:
            self._domains[key] = make()
            if len(self._domains) > KEPT:
                self._domains.popitem(last=False)
        self._domains.move_to_end(key)
        return self._domains[key]

    def await_turn(self, wanted: Wanted | None, deadline: float, patience: float) -> None:
        """Wait until the earlier plans of the same world have run.

        Raises
        ------
        WorldLost
            If one of them has not come until the deadline, or none until the ``patience``, in seconds, is over: this
            process is in no such world, which another one may have joined. Or if the world has ended.
        """
        if wanted is None:
            return

        def over() -> bool:
            return wanted.key in self._ended

        def has_turn() -> bool:
            return over() or self._next.get(wanted.key, 0) >= wanted.turn

        with self._turned:
            began = time.monotonic()
            if not self._turned.wait_for(lambda: has_turn() or wanted.key in self._next,
                                         min(deadline - began, patience)):
                raise WorldLost(f"this process is in no MPI world {wanted.key.hex()[:16]}: plan {wanted.turn} of it "
                                f"came, and within {time.monotonic() - began:.3g} s none of those before it")
            if not self._turned.wait_for(has_turn, deadline - time.monotonic()):
                raise WorldLost(f"plan {self._next.get(wanted.key, 0)} of a world did not come, and plan {wanted.turn} "
                                "waited")
            if over():
                raise WorldLost("a worker of the plan's world is lost")
            if self._next.setdefault(wanted.key, 0) == 0:
                self._turned.notify_all()       # others wait for the first plan of the world

    def turn_done(self, wanted: Wanted | None) -> None:
        """Pass the turn to the next plan of a world."""
        if wanted is not None:
            if self._world is not None and self.is_joined(wanted):
                self._world.end()
            with self._turned:
                self._next[wanted.key] = max(self._next.get(wanted.key, 0), wanted.turn + 1)
                self._turned.notify_all()

    def failed(self, wanted: Wanted | None, vrdds: Sequence[int], error: VisparkError) -> None:
        """Handle the failure of a plan of a world: let the next plan run if all workers of the world raise the same
        error, and else end the world, as other workers may wait for messages that this one will not send.

        ``vrdds`` are the plan's: that which it starts from, and those that it was to make.
        """
        if wanted is None or isinstance(error, PlanUnknown):    # after which the plan comes again, whole
            return
        named = [(wanted.key, vrdd) for vrdd in vrdds]
        started, vrdds_made = (named[0] if named else None), named[1:]
        if error.is_alike or (isinstance(error, PartitionMissing) and started in self._unmade):
            self._unmade.extend(vrdds_made)
            self.turn_done(wanted)
        else:
            self.end(wanted.key)

    def is_joined(self, wanted: Wanted) -> bool:
        """Return whether a world is the present one."""
        return self._world is not None and self._world.key == wanted.key

    def present(self, wanted: Wanted, deadline: float) -> JoinedWorld | None:
        """Return the joined world of a plan that begins now, with the plan's deadline; None if the world is not joined.
        """
        if self._world is None or not self.is_joined(wanted):
            return None
        self._world.begin(deadline - _SOONER)
        return self._world

    def world(self, wanted: Wanted | None, deadline: float, until: float) -> JoinedWorld | None:
        """Return the world of a plan, joining it until ``until`` if necessary; a plan without a world leaves the
        present one as it is.

        Raises
        ------
        WorldLost
            If it does not come to be.
        """
        if wanted is None:
            return None
        if not self.is_joined(wanted):
            self.leave()
            self._world = self._join(wanted, until)
        assert self._world is not None
        self._world.forget_old()
        return self.present(wanted, deadline)

    def _join(self, wanted: Wanted, until: float) -> JoinedWorld:
        def is_over() -> bool:
            return wanted.key in self._ended

        if not wanted.addresses:
            return exchange_kinds.kind_of("mpi").load()(wanted, until, is_over)
        with self._opening:
            opened = self._opened.pop(wanted.key, None)
        if opened is None:
            raise WorldLost(f"this process has no end of world {wanted.key.hex()[:16]}")
        return opened.join(wanted, until, is_over)

    def open(self, key: bytes, exchange: str) -> bytes:
        """Open this process's end of a world, and return its address.

        Raises
        ------
        OptionError
            If there is no such exchange.
        WorkerUnavailable
            If it is not installed here.
        """
        with self._opening:
            if key not in self._opened:
                self._opened[key] = exchange_kinds.kind_of(exchange).load()()
            while len(self._opened) > _OPENED:
                self._opened.popitem(last=False)[1].close()
            return self._opened[key].address

    def end(self, key: bytes) -> None:
        """End a world that has lost a worker, so that neither this process nor other nodes wait in it any more."""
        with self._turned:
            self._ended.append(key)
            self._next.pop(key, None)
            self._turned.notify_all()
        world = self._world
        if world is not None and world.key == key:
            world.interrupt()

    @property
    def sent(self) -> int:
        """The bytes that the present world has sent to other nodes."""
        return 0 if self._world is None else self._world.sent

    @property
    def way(self) -> str:
        """What messages of the present world go by, for people; "" without one."""
        return "" if self._world is None else self._world.way

    def leave(self) -> None:
        """Leave the world, if there is one; the other nodes learn of it at once."""
        world, self._world = self._world, None
        if world is not None:
            world.close()

    def close(self) -> None:
        """Leave the world, and end what was opened for others."""
        self.leave()
        with self._opening:
            while self._opened:
                self._opened.popitem()[1].close()
