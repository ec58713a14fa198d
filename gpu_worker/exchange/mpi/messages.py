"""Messages between a device process and its MPI rank, over a Unix socket."""

from __future__ import annotations

from gpu_worker.protocol.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Joined:
    """A rank's first message."""

    key: bytes
    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class SharedRange:
    """Range of the shared memory that is sent to a peer, or received from it."""

    peer: int
    tag: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StagedExchange:
    """Request to register shared memory, whose descriptor comes with the message, and the ranges that each :class:`Go`
    moves between the memory and the peers.
    """

    number: int
    sends: tuple[SharedRange, ...]
    receives: tuple[SharedRange, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """Request to forget a staged exchange."""

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
    """Reply that a staged exchange is done; ``sent`` are the bytes that this rank has given to MPI so far."""

    sent: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """Reply to :class:`Gather`: the data of all ranks, in their order."""

    data: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Report that the rank ends by an exception, with the exception's place and traceback."""

    said: str
    traceback: str


RankAnswer = Moved | Gathered | Ended
