"""Cache of a device's loaded kernels."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from gpu_worker.device.base import CompiledKernel, Source

#: How many kernels stay loaded on a device beyond those that plans and recordings hold; the one used least recently
#: goes first. Each takes some memory mappings, of which the system grants a process 65,530.
LOADED_KERNELS = 256

_Kernel = TypeVar("_Kernel", bound=CompiledKernel)


class LoadedKernels(Generic[_Kernel]):
    """Cache of the kernels that stay loaded, which makes each once: several threads make different ones at once."""

    def __init__(self) -> None:
        self._kernels: OrderedDict[tuple[Source, str], _Kernel] = OrderedDict()
        self._making: dict[tuple[Source, str], threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, source: Source, name: str, make: Callable[[Source, str], _Kernel]) -> _Kernel:
        """Return a source's kernel, made by ``make(source, name)`` unless it is loaded."""
        key = source, name
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                kernel = self._kernels.get(key)
            try:
                kernel = kernel or make(source, name)
            finally:
                with self._lock:
                    self._making.pop(key, None)
            with self._lock:
                self._kernels[key] = kernel
                self._kernels.move_to_end(key)
                gone = [self._kernels.popitem(last=False)] if len(self._kernels) > LOADED_KERNELS else []
        del gone        # without the lock: its library may be unloaded now
        return kernel

    def clear(self) -> None:
        """Hold no kernel any more."""
        self._kernels.clear()
