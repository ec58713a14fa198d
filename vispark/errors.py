"""The errors of vispark; :mod:`gpu_worker.protocol.errors` draws their tree."""

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import PythonException

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
    PublicationExists,
    PublicationLost,
    RecordError,
    SparkConnectError,
    SpillError,
    Unauthorized,
    VisparkError,
    WorkerError,
    WorkerLost,
    WorkerUnavailable,
    WorldLost,
)


class TaskError(VisparkError, Py4JJavaError, PythonException):
    """Error that a user's own function raised in a task of Spark's; the message has its type and words, ``detail`` its
    frames.

    It is a ``Py4JJavaError`` too, as PySpark raises for such an error, and a ``PythonException``, as it raises once a
    program has used SQL; but ``java_exception`` is None.

    Examples
    --------
    >>> import vispark
    >>> try:
    ...     sc.parallelize([1.0]).cache("GPU").map(lambda x: x / 0).collect()
    ... except vispark.TaskError as error:
    ...     print(error.message)
    a function that Spark ran raised ZeroDivisionError: float division by zero
    """

    def __init__(self, message: str, place: Place | None = None, detail: str = ""):
        Exception.__init__(self, message, place or Place(), detail)
        self.java_exception: Any = None
        # What PySpark's methods of a PythonException read, as of one without a Java exception.
        self._desc, self._stackTrace, self._cause, self._origin = message, "", None, None


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
    "PublicationExists",
    "PublicationLost",
    "RecordError",
    "SparkConnectError",
    "SpillError",
    "TaskError",
    "Unauthorized",
    "VisparkError",
    "WorkerError",
    "WorkerLost",
    "WorkerUnavailable",
    "WorldLost",
]
