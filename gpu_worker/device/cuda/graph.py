"""Work that comes again and again on a GPU, as CUDA graphs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from gpu_worker.device.base import RecordedWork, TapeEntry, enqueue
from gpu_worker.device.cuda.driver import bindings, check
from gpu_worker.protocol.errors import LaunchError

log = logging.getLogger(__name__)


class Graph(RecordedWork):
    """Recorded work as a CUDA graph, launched as a whole.

    The graph has the values that the work had first; with others it is enqueued piece by piece.
    """

    def __init__(self, device: Any, stream: Any, entries: Sequence[TapeEntry]):
        super().__init__(entries)
        self.device = device
        self.stream = stream
        self._first = [call.packed for call in self.late]
        self._handle: Any = None
        if len(entries) > 1:
            try:
                self._capture()
            except LaunchError as error:
                log.info("%d launches and copies are enqueued one by one: %s", len(entries), error)

    def _capture(self) -> None:
        device, stream = self.device, self.stream
        with device.active():
            mode = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            with device.pool.capture(stream.handle):
                check(bindings.cuStreamBeginCapture(stream.handle, mode))
                try:
                    enqueue(self.entries)
                finally:
                    status, graph = bindings.cuStreamEndCapture(stream.handle)
            check((status,))
            try:
                self._handle = check(bindings.cuGraphInstantiate(graph, 0))
                check(bindings.cuGraphUpload(self._handle, stream.handle))
            finally:
                bindings.cuGraphDestroy(graph)

    def start(self) -> None:
        if self._handle is None or any(call.packed != was for call, was in zip(self.late, self._first, strict=True)):
            super().start()
            return
        with self.device.active():
            check(bindings.cuGraphLaunch(self._handle, self.stream.handle))
        self._count()

    def close(self) -> None:
        if self._handle is not None:
            with self.device.active():
                check(bindings.cuGraphExecDestroy(self._handle))
            self._handle = None
