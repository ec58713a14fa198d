"""Contexts in which a CUDA context is the calling thread's, by PyCUDA and by cuda-bindings."""

from __future__ import annotations

import threading
from typing import Any

from gpu_worker.device.cuda.driver import DriverError
from gpu_worker.device.cuda.layer import cuda_driver


class Pushed:
    """Context that pushes a device's CUDA context on this thread's stack, unless it is there, and pops it, as PyCUDA
    needs it.

    Parameters
    ----------
    device : CudaDevice
    context : pycuda.driver.Context
        Its primary context.
    """

    __slots__ = ("_context", "_device")

    #: It is nobody's outside of it.
    is_here = False

    def __init__(self, device: Any, context: Any):
        self._device = device
        self._context = context

    def __enter__(self) -> None:
        self._device.check_usable()
        stack = _THREAD.stack
        if not stack or stack[-1] is not self:
            try:
                self._context.push()
            except cuda_driver.Error as error:
                raise self._device.translated(error) from error
        stack.append(self)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        stack = _THREAD.stack
        stack.pop()
        if not stack or stack[-1] is not self:
            try:
                cuda_driver.Context.pop()
            except cuda_driver.Error as failed:
                error = failed if error is None else error
        if isinstance(error, (cuda_driver.Error, DriverError)):
            raise self._device.translated(error) from error


class Current:
    """Context that makes a device's CUDA context this thread's, unless it is, and leaves it there.

    Nothing else in a device process changes a thread's context for good, so a thread that has used a device calls CUDA
    for what it asks of it alone. PyCUDA would end the process with such a thread.

    Parameters
    ----------
    device : CudaDevice
    context : PrimaryContext
        Its primary context, of cuda-bindings.
    """

    __slots__ = ("_context", "_device")

    def __init__(self, device: Any, context: Any):
        self._device = device
        self._context = context

    @property
    def is_here(self) -> bool:
        """Whether the CUDA context is this thread's, so that a call of CUDA needs nothing else."""
        return _THREAD.context is self._context

    def __enter__(self) -> None:
        self._device.check_usable()
        thread = _THREAD
        if thread.context is not self._context:
            self._take(thread)
        thread.stack.append(self)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        thread = _THREAD
        stack = thread.stack
        stack.pop()
        if stack and stack[-1] is not self:
            stack[-1]._take(thread)
        if error is not None and isinstance(error, DriverError):
            raise self._device.translated(error) from error

    def _take(self, thread: _Thread) -> None:
        try:
            self._context.make_current()
        except DriverError as error:
            raise self._device.translated(error) from error
        thread.context = self._context


class _Thread(threading.local):
    """A thread's contexts of devices, innermost last, and the context of cuda-bindings' that CUDA has for it."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.context: Any = None


_THREAD = _Thread()
