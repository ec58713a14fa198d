"""Table of the kinds of transports: name, capabilities, and the class that opens connections.

Drivers and tasks choose by it how plans reach a worker, and everybody else asks a kind for its capabilities, never for
its name. The code of a kind is imported with the first connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gpu_worker.protocol.errors import OptionError

#: Stands for the first kind that works for a worker.
AUTO = "auto"


@dataclass(frozen=True)
class TransportKind:
    """Kind of transports from a driver to a worker.

    Attributes
    ----------
    name : str
        What ``spark.vispark.transport`` calls it.
    label : str
        What ``explain()`` says of a plan, such as "by socket".
    meaning : str
        Its meaning, for the table of options.
    opener : str
        Module and class, as ``"package.module:Class"``, of a :class:`gpu_worker.client.transport.Transport`; empty
        where there are no connections, as messages go by Spark tasks.
    preference : int
        Its place among the kinds that "auto" tries for a worker, the highest first; 0: never.
    crosses_machines : bool
        Whether it reaches a worker on another machine than the driver's.
    needs_address : bool
        Whether the worker's :class:`~gpu_worker.protocol.messages.Reach` must be known, which its tasks bring.
    shares_memory : bool
        Whether it passes descriptors, so that payloads are memory that both sides map.
    """

    name: str
    label: str
    meaning: str
    opener: str = ""
    preference: int = 0
    crosses_machines: bool = False
    needs_address: bool = False
    shares_memory: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether the driver holds connections, on which plans may run ahead; else a message costs a Spark job."""
        return bool(self.opener)

    def load(self) -> type[Any]:
        """Return the class that opens connections; its module is imported now."""
        module, _, name = self.opener.partition(":")
        return getattr(import_module(module), name)


_KINDS: dict[str, TransportKind] = {}


def register(kind: TransportKind) -> TransportKind:
    """Add a kind to the table of this process; one of its name is replaced."""
    _KINDS[kind.name] = kind
    return kind


def unregister(name: str) -> None:
    """Remove a kind from the table of this process."""
    del _KINDS[name]


def kinds() -> list[TransportKind]:
    """Return all kinds, in the order in which they were registered."""
    return list(_KINDS.values())


def names() -> list[str]:
    """Return the values of ``spark.vispark.transport``.

    Examples
    --------
    >>> names()
    ['auto', 'unix', 'tcp', 'relay']
    """
    return [AUTO, *_KINDS]


def kind_of(name: str) -> TransportKind:
    """Return the kind of a name.

    Raises
    ------
    OptionError
        If there is none; the message has the names.
    """
    if name not in _KINDS:
        raise OptionError(f"no transport is called {name!r}; the known ones are {', '.join(names())}")
    return _KINDS[name]


def choose(wanted: str, *, is_here: bool, has_address: bool) -> TransportKind:
    """Return the kind to take for a worker.

    Parameters
    ----------
    wanted : str
        The value of ``spark.vispark.transport``: a name, or "auto" for the first that works.
    is_here : bool
        Whether the worker's socket can be opened from this process.
    has_address : bool
        Whether the worker's address is known, and was not refused.

    Examples
    --------
    >>> choose("auto", is_here=True, has_address=True).name, choose("auto", is_here=False, has_address=False).name
    ('unix', 'relay')
    """
    if wanted != AUTO:
        return kind_of(wanted)
    automatic = sorted((kind for kind in kinds() if kind.preference), key=lambda kind: -kind.preference)
    return next(kind for kind in automatic
                if (is_here or kind.crosses_machines) and (has_address or not kind.needs_address))


def wants_address(wanted: str, *, is_here: bool) -> bool:
    """Return whether a worker's address is of use to a driver.

    Examples
    --------
    >>> wants_address("auto", is_here=False), wants_address("auto", is_here=True), wants_address("relay", is_here=False)
    (True, False, False)
    """
    return choose(wanted, is_here=is_here, has_address=True).needs_address


register(TransportKind("unix", "by socket", "by its socket on the same node", "gpu_worker.client.unix:UnixTransport",
                       preference=3, shares_memory=True))
register(TransportKind("tcp", "over TCP", "to another node", "gpu_worker.client.tcp:TcpTransport", preference=2,
                       crosses_machines=True, needs_address=True))
register(TransportKind("relay", "through Spark", "through one Spark task per worker", preference=1,
                       crosses_machines=True))
