"""Kernels on a GPU that nobody waits for any more and that others wait behind.

A kernel cannot be stopped from outside, and much that the driver does waits for all that run: loading a module, pinned
memory that is given back. So the kernel of a client that is gone (Ctrl-C in the driver, a task that was killed) goes on
while nobody minds, and its process is ended as soon as another plan has waited behind it for some seconds; what the
process held is rebuilt (docs/decisions/0048-abandoned-kernels.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from gpu_worker.protocol.errors import Place
from gpu_worker.system import caller

#: For how long a plan waits behind an abandoned kernel, in seconds.
PATIENCE_SECONDS = 5.0


@dataclass(eq=False)
class Watched:
    """Plan whose kernels go on by themselves, as the thread sees it that looks after all.

    Attributes
    ----------
    running : callable
        Returns the place of its kernels that have not completed; None if all have.
    advanced : callable
        Returns what changes whenever it gets on.
    client : Caller
        For whom it runs.
    """

    running: Callable[[], Place | None]
    advanced: Callable[[], object]
    client: caller.Caller = field(default_factory=caller.current)
    gone: float = 0.0
    _at: object = None
    _since: float = field(default_factory=time.monotonic)

    def look(self, now: float) -> None:
        """Look whether its client is there, and whether it gets on."""
        if not self.gone and self.client.is_gone():
            self.gone = now
        at = self.advanced()
        if at != self._at:
            self._at, self._since = at, now

    def waited(self, now: float, since: float) -> float:
        """Return for how long it has not got on, while its client waits; from a moment on."""
        return 0.0 if self.gone else now - max(self._since, since)


def kernels_in_the_way(plan: Watched, plans: Collection[Watched], now: float) -> Place | None:
    """Return the place of the kernels of a plan whose client is gone and behind which another of ``plans`` has waited
    for too long; None if there is none.
    """
    plan.look(now)
    if not plan.gone:
        return None
    for other in plans:
        other.look(now)
    return plan.running() if any(other.waited(now, plan.gone) > PATIENCE_SECONDS for other in plans) else None
