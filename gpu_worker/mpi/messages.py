"""Messages between a device process and its MPI rank, over a Unix socket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Joined:
    """A rank's first message."""

    key: bytes
    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class SharedRange:
    """Bytes of the shared memory that go to a peer, or come from there."""

    peer: int
    tag: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StagedExchange:
    """Shared memory, whose descriptor comes beside, and what is moved between it and the peers at each :class:`Go`."""

    number: int
    sends: tuple[SharedRange, ...]
    receives: tuple[SharedRange, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """Let go of a stage."""

    number: int


@dataclass(frozen=True, slots=True)
class Go:
    """Move what a stage says; answered by :class:`Moved`."""

    number: int


@dataclass(frozen=True, slots=True)
class Gather:
    """Tell every rank what each one says here; answered by :class:`Gathered`."""

    data: bytes


Order = StagedExchange | Forget | Go | Gather


@dataclass(frozen=True, slots=True)
class Moved:
    """It is done; ``sent`` are the bytes that this rank has given to MPI so far."""

    sent: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """Reply to :class:`Gather`: the data of all ranks, in their order."""

    data: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The rank ends, which nobody asked for: the exception that it dies of, with its place, and the traceback."""

    said: str
    traceback: str


Answer = Moved | Gathered | Ended
