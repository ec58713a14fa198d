"""Every error of vispark and its workers.

::

    VisparkError
     ├─ RecordError            records that cannot be held: objects, ragged rows, mixed types
     ├─ PlanError              a plan that cannot be run as written
     │   ├─ LaunchError        grid, block, out= or arguments that do not fit the kernel or the block
     │   ├─ PublicationExists  another publication has the name
     │   └─ KeysRefused        keys or values that devices would not treat as Python does
     ├─ KernelError
     │   ├─ CompileError       the compiler's words, with the user's line
     │   ├─ KernelFault        the kernel ended its process: illegal address, trap, signal
     │   └─ DeadlineExceeded   the plan ran past its deadline
     ├─ NotFinite              a number that is NaN or infinite, found because a check was asked for
     ├─ OutOfMemory            device, host or payload memory; nothing that was there is lost
     ├─ OutOfResources         descriptors, threads or processes of the system; nothing that was there is lost
 ├─ SpillError             a file of what finds no room in memory cannot be written; nothing that was there is lost
     ├─ DeviceUnavailable      the device asked for cannot be had here
     ├─ OptionError            an unknown or ill-typed option
     ├─ SparkConnectError      a Spark session without RDDs
     └─ WorkerError
         ├─ WorkerUnavailable  no worker reachable and none can start
         ├─ WorkerLost         the connection broke while a plan was in flight
         ├─ WorldLost          the MPI world of a grid that spans nodes did not come to be, or a rank is gone
         │   └─ NodeSilent     a node's daemon does not answer, and no world can come to be before it does
         ├─ PartitionMissing   the worker does not hold the partition (any more)
         ├─ Fenced             a request from before a recovery
         ├─ PublicationLost    no publication of that name, or not any more
         ├─ PlanUnknown        a plan, or its values' memory, that the worker does not know by its name (any more)
         ├─ Unauthorized       wrong user, session or secret
         └─ ProtocolError      a frame, message or descriptor that is not of this protocol or version

An error that crosses a socket travels as a :class:`~gpu_worker.protocol.messages.Failure` and is raised again on the
other side as the same class.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Place:
    """Location of an error in the user's terms; unknown parts are empty."""

    vrdd: str = ""
    partition: int | None = None
    operation: str = ""
    device: str = ""

    def __str__(self) -> str:
        parts = [("VRDD", self.vrdd), ("partition", self.partition), ("operation", self.operation),
                 ("device", self.device)]
        return ", ".join(f"{name} {value}" for name, value in parts if value not in ("", None))


class VisparkError(Exception):
    """Base of all errors raised by vispark.

    Parameters
    ----------
    message : str
        What was wrong, and what would be right.
    place : Place
        VRDD, partition, operation and device concerned.
    detail : str
        Longer material, such as a compiler's log; printed below the message.
    """

    #: Once the error has left vispark: the whole trace as text, with what Spark and Py4J said; empty before.
    full_trace = ""
    #: Whether all workers of an MPI world that run a plan raise it, at the same place: what comes next may go on there.
    is_alike = False

    args: tuple[str, Place, str]

    def __init__(self, message: str, place: Place | None = None, detail: str = ""):
        super().__init__(message, place or Place(), detail)
        self.args = (message, place or Place(), detail)     # an OSError keeps but two of three arguments

    @property
    def message(self) -> str:
        return self.args[0]

    @property
    def place(self) -> Place:
        return self.args[1]

    @property
    def detail(self) -> str:
        return self.args[2]

    def at(self, **known: Any) -> VisparkError:
        """Return a copy of the error with those parts of its place filled in that were unknown."""
        missing = {f.name for f in fields(Place) if getattr(self.place, f.name) in ("", None)}
        place = replace(self.place, **{name: value for name, value in known.items() if name in missing})
        error = type(self)(self.message, place, self.detail)
        error.__cause__ = self.__cause__
        return error.with_traceback(self.__traceback__)

    def __str__(self) -> str:
        where = str(self.place)
        return self.message + (f" [{where}]" if where else "") + (f"\n{self.detail}" if self.detail else "")


class RecordError(VisparkError, TypeError):
    """Records that a worker cannot hold: object or string arrays, ragged rows, mixed types."""


class PlanError(VisparkError, ValueError):
    """A plan that cannot be run as written."""


class LaunchError(PlanError):
    """Grid, block, ``out=`` or arguments that do not fit the kernel or the block."""


class PublicationExists(PlanError):
    """Another publication has the name; ``publish(..., replace=True)`` takes its place."""


class KeysRefused(PlanError):
    """Keys that are NaN, or values whose fold by key is not what Python's would be: what Spark itself is to do."""

    #: Nodes that exchange rows agree on it before any is moved, or it comes behind the exchange.
    is_alike = True


class KernelError(VisparkError, RuntimeError):
    """A kernel that could not be compiled or did not end well."""


class CompileError(KernelError):
    """The compiler refused the source; ``detail`` has its words."""


class KernelFault(KernelError):
    """A kernel ended its process: an illegal address, a trap, a signal."""


class DeadlineExceeded(KernelError):
    """A plan ran past its deadline and its process was ended."""


class NotFinite(VisparkError, ArithmeticError):
    """A number is NaN or infinite, found because a check was asked for; the message names block and index."""

    is_alike = True


class OutOfMemory(VisparkError, MemoryError):
    """Device, host or payload memory is short; what was held before is still held."""


class OutOfResources(VisparkError, RuntimeError):
    """The operating system gives no more descriptors, threads or processes; what was held before is still held."""


class SpillError(VisparkError, OSError):
    """A file of what finds no room in memory cannot be written; what was held before is still held."""


class DeviceUnavailable(VisparkError, RuntimeError):
    """The device asked for cannot be had on this machine."""


class OptionError(VisparkError, ValueError):
    """An unknown ``spark.vispark.*`` option, or a value that it does not take."""


class SparkConnectError(VisparkError, ImportError):
    """A Spark Connect session, which has no RDDs."""


class WorkerError(VisparkError, ConnectionError):
    """Something between a client and its worker."""


class WorkerUnavailable(WorkerError):
    """No worker is reachable, and none can be started."""


class WorkerLost(WorkerError):
    """The connection broke while a plan was in flight."""


class WorldLost(WorkerError):
    """The MPI world of a grid that spans nodes did not come to be, or a rank of it is gone; what was held is held."""


class NodeSilent(WorldLost):
    """A node's daemon does not answer, so that no MPI world with its worker can come to be before it does."""


class PartitionMissing(WorkerError):
    """The worker does not hold the partition, or not any more."""


class PublicationLost(WorkerError):
    """There is no publication of that name, or not any more; the message says which and, where known, since when."""


class Fenced(WorkerError):
    """A request numbered before a recovery."""


class PlanUnknown(WorkerError):
    """The worker does not know the plan by its digest, or the memory of its values by its number, or not any more;
    nothing was done.
    """


class Unauthorized(WorkerError):
    """Another user's, another session's, or an unknown peer."""


class ProtocolError(WorkerError):
    """A frame, message or descriptor that is not of this protocol or version."""


def _tree(base: type[VisparkError]) -> dict[str, type[VisparkError]]:
    classes = {base.__name__: base}
    for child in base.__subclasses__():
        classes |= _tree(child)
    return classes


#: Name to class, for errors that arrive from a peer.
BY_NAME = _tree(VisparkError)
