"""What a daemon and its device processes say to each other.

A device process reads its :class:`Configuration` from its standard input. It listens on its session's socket, where one
daemon at a time is connected: the process introduces itself with a :class:`Registration`, then the daemon sends a
:class:`HandOver` with a client's connection beside it, and gets :class:`Taken`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_worker.protocol.messages import SessionOptions


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a device process is started with."""

    session: str
    secret: bytes
    application: str
    options: SessionOptions
    epoch: int
    worker: str
    box: str


@dataclass(frozen=True, slots=True)
class Registration:
    """All that a new daemon must know of a running process; ``anchors`` are those of its clients that live."""

    session: str
    secret: bytes
    application: str
    options: SessionOptions
    epoch: int
    pid: int
    anchors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """A client's connection, greeted and authenticated; ``anchor`` is 0 where it has none."""

    number: int
    role: str
    anchor: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The process has the connection, and ``clients`` in all."""

    number: int
    clients: int
