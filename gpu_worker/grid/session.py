"""What a device process keeps of grids from one plan to the next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from gpu_worker.device.base import Device
from gpu_worker.grid.patches import Domain
from gpu_worker.protocol.grids import Exchange, GridShape, Iterate, Stencil
from gpu_worker.protocol.messages import Plan

#: Domains kept; the one used least recently goes first.
KEPT = 16


class Grids:
    """The grids of a session.

    Ghost cells are filled in place, in memory that several plans may have, so plans that do so take turns.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._domains: OrderedDict[tuple, Domain] = OrderedDict()

    def turns(self, plan: Plan) -> AbstractContextManager[object]:
        """Within it, no other plan fills ghost cells, if this one does."""
        filling = any(isinstance(step, Exchange | Stencil | Iterate) for step in plan.steps)
        return self._turn if filling else nullcontext()

    def domain(self, grid: GridShape, owners: Mapping[int, Device]) -> Domain:
        """The domain of blocks, given by their numbers, on devices; worked out once."""
        key = grid, tuple(sorted((number, device.name) for number, device in owners.items()))
        if key not in self._domains:
            self._domains[key] = Domain.of(grid, owners)
            if len(self._domains) > KEPT:
                self._domains.popitem(last=False)
        self._domains.move_to_end(key)
        return self._domains[key]
