"""Table of the kinds of exchanges by which device processes of several nodes pass ghost cells to each other.

Drivers choose by it, and device processes load by it the code of a kind, with the first world that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gpu_worker.protocol.errors import OptionError


@dataclass(frozen=True)
class ExchangeKind:
    """Kind of exchange between the nodes of a session.

    Attributes
    ----------
    name : str
        What ``spark.vispark.exchange`` calls it.
    meaning : str
        Its meaning, for the table of options.
    joiner : str
        Module and callable, as ``"package.module:name"``. Of a kind that needs no addresses, the function
        ``join(wanted, deadline, is_over)`` that returns a :class:`gpu_worker.exchange.base.JoinedWorld`; of one that
        does, a class whose objects are opened before: they have an ``address``, ``join`` and ``close``.
    needs_addresses : bool
        Whether the driver brings each process the addresses of the others; else the nodes' daemons know each other.
    """

    name: str
    meaning: str
    joiner: str
    needs_addresses: bool = False

    def load(self) -> Any:
        """Return the joiner; its module is imported now."""
        module, _, name = self.joiner.partition(":")
        return getattr(import_module(module), name)


_KINDS: dict[str, ExchangeKind] = {}


def register(kind: ExchangeKind) -> ExchangeKind:
    """Add a kind to the table of this process; one of its name is replaced."""
    _KINDS[kind.name] = kind
    return kind


def kinds() -> list[ExchangeKind]:
    """Return all kinds, in the order in which they were registered."""
    return list(_KINDS.values())


def names() -> list[str]:
    """Return the values of ``spark.vispark.exchange``.

    Examples
    --------
    >>> names()
    ['mpi', 'ucx']
    """
    return list(_KINDS)


def kind_of(name: str) -> ExchangeKind:
    """Return the kind of a name.

    Raises
    ------
    OptionError
        If there is none; the message has the names.
    """
    if name not in _KINDS:
        raise OptionError(f"no exchange is called {name!r}; the known ones are {', '.join(names())}")
    return _KINDS[name]


register(ExchangeKind("mpi", "by MPI ranks that `mpirun` starts beside the device processes, through the nodes' "
                      "daemons (extra `mpi`)", "gpu_worker.exchange.mpi.world:join"))
register(ExchangeKind("ucx", "by UCX, from device process to device process, without `mpirun` (extra `ucx`)",
                      "gpu_worker.exchange.ucx.world:OpenedWorld", needs_addresses=True))
