"""Choice of the layer below the ``cuda`` device: PyCUDA, or cuda-bindings alone.

Both have the same names. ``VISPARK_CUDA_DRIVER`` says which: ``pycuda``, ``bindings``, or ``auto``, which is PyCUDA
where it is installed. The variable is read once, by the device process; Spark sets it for executors by
``spark.executorEnv.VISPARK_CUDA_DRIVER``.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from gpu_worker.device.cuda import native_driver
from gpu_worker.device.cuda.driver import MISSING, bindings
from gpu_worker.protocol.errors import DeviceUnavailable

try:
    import pycuda.driver as _pycuda
    _PYCUDA_MISSING = ""
except ImportError as _error:
    _pycuda = None
    _PYCUDA_MISSING = str(_error)

VARIABLE = "VISPARK_CUDA_DRIVER"
LAYERS = ("auto", "pycuda", "bindings")


def wanted() -> str:
    """Return the layer that the environment names.

    Raises
    ------
    DeviceUnavailable
        If it names none.
    """
    name = os.environ.get(VARIABLE, "") or "auto"
    if name not in LAYERS:
        raise DeviceUnavailable(f"{VARIABLE} is one of {', '.join(LAYERS)}, not {name!r}")
    return name


def missing() -> str:
    """Return the package that the wanted layer lacks, with the reason; empty if it can be used."""
    if bindings is None:
        return MISSING or "cuda-bindings is not installed"
    return _PYCUDA_MISSING if wanted() == "pycuda" and _pycuda is None else ""


def chosen(name: str, pycuda: ModuleType | None) -> Any:
    """Return the layer of a name, where PyCUDA is a module or not installed.

    Examples
    --------
    >>> chosen("auto", None).__name__
    'gpu_worker.device.cuda.native_driver'
    """
    return native_driver if name == "bindings" or pycuda is None else pycuda


#: The layer of this process, by the names of PyCUDA; a name that is unknown is told where a device is opened.
cuda_driver: Any = chosen(os.environ.get(VARIABLE, ""), _pycuda)
