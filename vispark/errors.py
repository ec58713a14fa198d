"""The errors of vispark; :mod:`gpu_worker.protocol.errors` draws their tree."""

from gpu_worker.protocol.errors import (
    CompileError,
    DeadlineExceeded,
    DeviceUnavailable,
    Fenced,
    KernelError,
    KernelFault,
    LaunchError,
    NodeSilent,
    NotFinite,
    OptionError,
    OutOfMemory,
    OutOfResources,
    PartitionMissing,
    Place,
    PlanError,
    PlanUnknown,
    ProtocolError,
    RecordError,
    SparkConnectError,
    Unauthorized,
    VisparkError,
    WorkerError,
    WorkerLost,
    WorkerUnavailable,
    WorldLost,
)


class FallbackWarning(UserWarning):
    """An action on cached data that workers cannot answer, and is a Spark job; the message has the reason."""


class MeaningWarning(UserWarning):
    """A function that may mean something else in ``vmap`` than in ``map``; the message has both spellings."""


__all__ = [
    "CompileError",
    "DeadlineExceeded",
    "DeviceUnavailable",
    "FallbackWarning",
    "Fenced",
    "KernelError",
    "KernelFault",
    "LaunchError",
    "MeaningWarning",
    "NodeSilent",
    "NotFinite",
    "OptionError",
    "OutOfMemory",
    "OutOfResources",
    "PartitionMissing",
    "Place",
    "PlanError",
    "PlanUnknown",
    "ProtocolError",
    "RecordError",
    "SparkConnectError",
    "Unauthorized",
    "VisparkError",
    "WorkerError",
    "WorkerLost",
    "WorkerUnavailable",
    "WorldLost",
]
