"""The one place where tables import Arrow, whose absence it says."""

from __future__ import annotations

from typing import Any

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.extras import install

try:
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.dataset
    import pyarrow.fs
    import pyarrow.ipc
    import pyarrow.orc
    import pyarrow.parquet
except ImportError:
    pyarrow = None

#: Arrow itself; what uses it calls :func:`require` first.
pa: Any = pyarrow


def require(what: str) -> None:
    """Check that Arrow is installed.

    Raises
    ------
    PlanError
        If it is not; ``what`` needs it.
    """
    if pa is None:
        raise PlanError(f"{what} needs pyarrow: {install('dataframe')}")
