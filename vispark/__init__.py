"""GPU in-memory processing for iterative PySpark programs.

``import vispark`` adds operations to :class:`pyspark.RDD`; nothing that an RDD did before changes.

>>> import numpy as np
>>> rows = sc.parallelize([np.float32([1, 2]), np.float32([3, 4])], 2).cache("GPU")
>>> rows.count()
2
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpu_worker.protocol.version import __version__  # noqa: F401 - the package's own
from vispark._utils.lazy import names_of as _names_of
from vispark.api.patch_pyspark import install as _install
from vispark.errors import (
    CompileError,
    DeadlineExceeded,
    DeviceUnavailable,
    FallbackWarning,
    KernelError,
    KernelFault,
    LaunchError,
    MeaningWarning,
    NotFinite,
    OptionError,
    OutOfMemory,
    PlanError,
    PublicationExists,
    PublicationLost,
    RecordError,
    SparkConnectError,
    TaskError,
    VisparkError,
    WorkerError,
    WorkerUnavailable,
)

if TYPE_CHECKING:
    from vispark import random as random
    from vispark.api.grids.grid import Grid
    from vispark.api.keys.keyed_tables import KeyedTable
    from vispark.api.notebook.extension import load_ipython_extension
    from vispark.api.rdds.explain import translate
    from vispark.api.rdds.gpu_profile import gpu_profile
    from vispark.api.sources.attaching import attach, publications
    from vispark.api.sources.table_readers import from_dataframe, read_csv, read_orc, read_parquet
    from vispark.api.sources.text_readers import read_text
    from vispark.api.udfs.added import with_column
    from vispark.api.udfs.translated import udf
    from vispark.api.vrdd import VRDD
    from vispark.data.grid.key import BlockKey
    from vispark.data.records.rows import Rows
    from vispark.plan.cuda_source import Kernel, Kernels
    from vispark.plan.symbols import IN, OUT
    from vispark.runtime.driver.progress import progress
    from vispark.runtime.monitor.dashboard import dashboard
    from vispark.runtime.profiling.profiler import Profile, profile
    from vispark.translate import TranslationError, coordinate, extent, stencil

__all__ = [
    "IN",
    "OUT",
    "VRDD",
    "BlockKey",
    "CompileError",
    "DeadlineExceeded",
    "DeviceUnavailable",
    "FallbackWarning",
    "Grid",
    "Kernel",
    "KernelError",
    "KernelFault",
    "Kernels",
    "KeyedTable",
    "LaunchError",
    "MeaningWarning",
    "NotFinite",
    "OptionError",
    "OutOfMemory",
    "PlanError",
    "Profile",
    "PublicationExists",
    "PublicationLost",
    "RecordError",
    "Rows",
    "SparkConnectError",
    "TaskError",
    "TranslationError",
    "VisparkError",
    "WorkerError",
    "WorkerUnavailable",
    "attach",
    "coordinate",
    "dashboard",
    "extent",
    "from_dataframe",
    "gpu_profile",
    "load_ipython_extension",
    "profile",
    "progress",
    "publications",
    "read_csv",
    "read_orc",
    "read_parquet",
    "read_text",
    "stencil",
    "translate",
    "udf",
    "with_column",
]

# Each Python worker of Spark's imports this package, and most need none of these.
__getattr__, __dir__ = _names_of(__name__, {
    "vispark.api.sources.attaching": ("attach", "publications"),
    "vispark.api.rdds.gpu_profile": ("gpu_profile",),
    "vispark.api.grids.grid": ("Grid",),
    "vispark.api.keys.keyed_tables": ("KeyedTable",),
    "vispark.api.sources.table_readers": ("from_dataframe", "read_csv", "read_orc", "read_parquet"),
    "vispark.api.sources.text_readers": ("read_text",),
    "vispark.api.vrdd": ("VRDD",),
    "vispark.data.grid.key": ("BlockKey",),
    "vispark.runtime.monitor.dashboard": ("dashboard",),
    "vispark.api.notebook.extension": ("load_ipython_extension",),
    "vispark.plan.cuda_source": ("Kernel", "Kernels"),
    "vispark.plan.symbols": ("IN", "OUT"),
    "vispark.runtime.profiling.profiler": ("Profile", "profile"),
    "vispark.random": ("random",),
    "vispark.data.records.rows": ("Rows",),
    "vispark.runtime.driver.progress": ("progress",),
    "vispark.translate": ("TranslationError", "coordinate", "extent", "stencil"),
    "vispark.api.udfs.added": ("with_column",),
    "vispark.api.udfs.translated": ("udf",),
})


class _Package(ModuleType):
    """The package, whose ``translate`` is a function; the package of that name stays importable beside it."""

    @property
    def translate(self) -> Any:
        return import_module("vispark.api.rdds.explain").translate

    @translate.setter
    def translate(self, package: ModuleType) -> None:
        """Take no notice: the import of the package ``vispark.translate`` would put that in the function's place."""


sys.modules[__name__].__class__ = _Package
_install()
