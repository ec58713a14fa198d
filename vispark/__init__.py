"""GPU in-memory processing for iterative PySpark programs.

``import vispark`` adds operations to :class:`pyspark.RDD`; nothing that an RDD did before changes.

>>> import numpy as np
>>> rows = sc.parallelize([np.float32([1, 2]), np.float32([3, 4])], 2).cache("GPU")
>>> rows.count()
2
"""

from gpu_worker.protocol.version import __version__  # noqa: F401 - the package's own
from vispark.api.grid import Grid
from vispark.api.patch_pyspark import install as _install
from vispark.api.vrdd import VRDD
from vispark.errors import (
    CompileError,
    DeadlineExceeded,
    DeviceUnavailable,
    KernelError,
    KernelFault,
    LaunchError,
    MeaningWarning,
    NotFinite,
    OptionError,
    OutOfMemory,
    PlanError,
    RecordError,
    SparkConnectError,
    VisparkError,
    WorkerError,
    WorkerUnavailable,
)
from vispark.grid.key import BlockKey
from vispark.plan.cuda_source import Kernel, Kernels
from vispark.plan.symbols import IN, OUT
from vispark.profiling.profiler import Profile, profile
from vispark.records.rows import Rows
from vispark.records.text import read_text
from vispark.translate import TranslationError, coordinate, extent, stencil

# After the package of the same name, which stays importable as vispark.translate.
from vispark.api.explain import translate  # isort: skip

__all__ = [
    "IN",
    "OUT",
    "VRDD",
    "BlockKey",
    "CompileError",
    "DeadlineExceeded",
    "DeviceUnavailable",
    "Grid",
    "Kernel",
    "KernelError",
    "KernelFault",
    "Kernels",
    "LaunchError",
    "MeaningWarning",
    "NotFinite",
    "OptionError",
    "OutOfMemory",
    "PlanError",
    "Profile",
    "RecordError",
    "Rows",
    "SparkConnectError",
    "TranslationError",
    "VisparkError",
    "WorkerError",
    "WorkerUnavailable",
    "coordinate",
    "extent",
    "profile",
    "read_text",
    "stencil",
    "translate",
]

_install()
