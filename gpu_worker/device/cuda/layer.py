"""Choice of the layer below the ``cuda`` device: cuda-bindings alone, or PyCUDA beside it.

Both have the same names. ``VISPARK_CUDA_DRIVER`` says which: ``bindings``, which is the default, or ``pycuda``. The
variable is read once, by the device process; Spark sets it for executors by ``spark.executorEnv.VISPARK_CUDA_DRIVER``.
PyCUDA holds Python's lock while it loads a module, which waits for the kernels that run.
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
LAYERS = ("bindings", "pycuda")


def layer_name() -> str:
    """Return the layer that the environment names.

    Raises
    ------
    DeviceUnavailable
        If it names none.
    """
    name = os.environ.get(VARIABLE, "") or LAYERS[0]
    if name not in LAYERS:
        raise DeviceUnavailable(f"{VARIABLE} is one of {', '.join(LAYERS)}, not {name!r}")
    return name


def missing() -> str:
    """Return the package that the wanted layer lacks, with the reason; empty if it can be used."""
    if bindings is None:
        return MISSING or "cuda-bindings is not installed"
    return _PYCUDA_MISSING if layer_name() == "pycuda" and _pycuda is None else ""


def chosen(name: str, pycuda: ModuleType | None) -> Any:
    """Return the layer of a name; ``pycuda`` is PyCUDA's module, or None where it is not installed.

    Examples
    --------
    >>> chosen("bindings", None).__name__
    'gpu_worker.device.cuda.native_driver'
    """
    return pycuda if name == "pycuda" and pycuda is not None else native_driver


#: The layer of this process, by the names of PyCUDA; a name that is unknown is told where a device is opened.
cuda_driver: Any = chosen(os.environ.get(VARIABLE, ""), _pycuda)
