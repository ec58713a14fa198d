"""Messages about publications: content of one session that other sessions of the user map and read.

A device process copies what it publishes into memory that other processes can map, and puts the descriptors into
its node's daemon, under a name. The device process of a reader's session takes them from there. The memory is the
kernel's, or a driver's: it goes when the last of daemon and processes has closed it, so that no process needs another.
"""

from __future__ import annotations

from dataclasses import field

from gpu_worker.protocol.frozen import dataclass

#: The most characters of a publication's name, and bytes of the digest of its secret.
MAX_NAME, SECRET_BYTES = 128, 32

#: The longest lease, in seconds.
MAX_LEASE = 366 * 86400.0

#: Length of the tag before a blob of keys, and the tag of those that any session may read.
TAG_BYTES = 32
OPEN_TAG = bytes(TAG_BYTES)
#: Byte behind the tag of a blob of pickled keys, which no other session may read.
PICKLED = b"p"


@dataclass(frozen=True, slots=True)
class PublicationDetails:
    """Publication as it was made: ``key`` tells it from others of its name, ``digest`` is that of its secret, if it has
    one, and ``lease`` for how many seconds it is kept without owner and readers.

    ``place`` is where its blocks lie, as in a :class:`~gpu_worker.protocol.plans.KeepStep`, and ``partitions`` their
    number on all nodes.
    """

    name: str
    key: str
    application: str
    dataset: str
    place: str
    partitions: int
    lease: float
    digest: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class SharedSegment:
    """Memory that several processes map: the devices that can map it, and its size. ``memory`` is empty for host
    memory.
    """

    memory: str
    nbytes: int


# -- between clients and a device process -----------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Publish:
    """Request to publish what the worker holds of a VRDD; with ``replace``, in place of another of that name."""

    number: int
    vrdd: int
    details: PublicationDetails
    replace: bool


@dataclass(frozen=True, slots=True)
class Attach:
    """Request to hold this node's part of a publication as a VRDD of a number of its own, which is read only; answered
    by ``AttachedVrdd``. Without a ``key`` it is the one that has the name now.
    """

    number: int
    name: str
    key: str
    digest: bytes = field(repr=False)
    vrdd: int
    dataset: str


@dataclass(frozen=True, slots=True)
class Retract:
    """Request to take a publication of this session back; who has attached it keeps it."""

    number: int
    name: str
    key: str


# -- between device processes, administrators and a daemon ------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class PutPublication:
    """Request to keep a publication, whose descriptors come with the message, one for each segment.

    The first is of host memory; what describes the content lies at ``offset`` of it. A reader's process, ``vrdd`` not
    being 0, puts what it has attached into a daemon that does not know it.
    """

    session: str
    secret: bytes = field(repr=False)
    details: PublicationDetails
    replace: bool
    segments: tuple[SharedSegment, ...]
    offset: int
    nbytes: int
    owner: str
    vrdd: int = 0


@dataclass(frozen=True, slots=True)
class GetPublication:
    """Request for the descriptors of a publication, which a session attaches as a VRDD of a number of its own."""

    session: str
    secret: bytes = field(repr=False)
    name: str
    key: str
    digest: bytes = field(repr=False)
    vrdd: int


@dataclass(frozen=True, slots=True)
class DetachPublications:
    """Notice that a session has given up the publications that it attached as these VRDDs."""

    session: str
    secret: bytes = field(repr=False)
    vrdds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListPublications:
    """Request for the publications of this node."""


@dataclass(frozen=True, slots=True)
class Unpublish:
    """Request to take a publication back; with a ``key``, only if it is that one."""

    name: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class PublicationPart:
    """Reply with a publication, whose descriptors come with the message, as it was put there."""

    details: PublicationDetails
    segments: tuple[SharedSegment, ...]
    offset: int
    nbytes: int
    owner: str


@dataclass(frozen=True, slots=True)
class PublicationStatus:
    """Status of a publication on a node: its bytes there, the sessions that have it attached, and the seconds until it
    ends; below 0 while owner or readers are there.
    """

    name: str
    key: str
    application: str
    dataset: str
    partitions: int
    nbytes: int
    readers: int
    expires: float


@dataclass(frozen=True, slots=True)
class PublicationReport:
    """Publications of a node."""

    publications: tuple[PublicationStatus, ...]
