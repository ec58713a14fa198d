"""Scratch memory of a plan on devices, and its arguments' values there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from gpu_worker.device.base import Buffer, Device, Stream
from gpu_worker.device.memory.registry import Registry
from gpu_worker.execution.memory.held_tables import hold, table_buffer
from gpu_worker.execution.memory.payload_copies import PayloadCopies
from gpu_worker.execution.plan_checks import dtype_of, value_bytes
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.errors import PlanError, ProtocolError
from gpu_worker.protocol.messages import ArgumentValue
from gpu_worker.protocol.payload import INLINE_BYTES, Payload


class PassRecorder(Protocol):
    """Interface of what records a plan's pass, as its memory and arguments see it; the methods are those of
    :class:`gpu_worker.execution.replay.recording.Recording`.
    """

    copies: PayloadCopies | None
    refused: bool

    def given(self, place: int, nbytes: int, device: Device) -> Buffer | None: ...
    def host(self, nbytes: int, device: Device) -> np.ndarray: ...
    def stage(self, slot: int, data: np.ndarray, device: Device) -> np.ndarray: ...
    def fix(self, slot: int, data: bytes) -> None: ...


class Scratch:
    """Buffers of one plan; buffers that are out of use serve later work of their stream."""

    def __init__(self, streams: Streams, recording: PassRecorder | None = None):
        self._streams = streams
        self._recording = recording
        #: All that was allocated.
        self.allocated: list[Buffer] = []
        #: What the allocations of the plan's own steps gave, by their number.
        self._gave: list[Buffer] = []
        self._spare: dict[Stream, dict[int, list[Buffer]]] = defaultdict(lambda: defaultdict(list))
        #: Host memory that copies still read.
        self._reading: list[np.ndarray] = []

    def allocate(self, nbytes: int, device: Device, stream: Stream) -> Buffer:
        """Return a buffer for work on a stream."""
        recorded = self._recording.given(len(self._gave), nbytes, device) if self._recording else None
        buffer = recorded or self._allocate(nbytes, device, stream)
        self._gave.append(buffer)
        return buffer

    def numbered(self) -> dict[int, Buffer]:
        """Return the allocated buffers, each by the number of its last allocation."""
        numbers = {buffer: number for number, buffer in enumerate(self._gave)}
        return {number: buffer for buffer, number in numbers.items()}

    def _allocate(self, nbytes: int, device: Device, stream: Stream) -> Buffer:
        for usable in self._streams.before(device, stream):
            if self._spare[usable][nbytes]:
                buffer = self._spare[usable][nbytes].pop()
                buffer.ghosts = None
                return buffer
        buffer = device.allocate(nbytes, stream=stream)
        self.allocated.append(buffer)
        return buffer

    def host(self, nbytes: int, device: Device) -> np.ndarray:
        """Return host memory (uint8) for results of the plan."""
        return np.empty(nbytes, np.uint8) if self._recording is None else self._recording.host(nbytes, device)

    def recycle(self, buffer: Buffer, stream: Stream) -> None:
        """End a use of a buffer, whose last work was on a stream."""
        if buffer.last and not buffer.is_read_only:
            self._spare[stream][buffer.nbytes].append(buffer)
        else:
            buffer.close()

    def upload(self, array: np.ndarray, device: Device, stream: Stream) -> Buffer:
        """Return a buffer with an array's bytes, for :meth:`forget` to take back."""
        buffer = self._allocate(array.nbytes, device, stream)
        self.write(buffer, array, device, stream)
        return buffer

    def write(self, buffer: Buffer, array: np.ndarray, device: Device, stream: Stream) -> None:
        """Copy an array's bytes to a buffer once, outside of the recording: replays find the bytes in the buffer."""
        self._reading.append(array)
        with stream.unnoted():
            device.copy_in(buffer, array.reshape(-1).view(np.uint8), stream=stream)

    def adopt(self, buffer: Buffer) -> Buffer:
        """Register a buffer that was allocated elsewhere; :meth:`forget` takes it back."""
        self.allocated.append(buffer)
        return buffer

    def forget(self, buffer: Buffer, stream: Stream) -> None:
        """End the use of an uploaded buffer."""
        if self._recording is None:
            self.recycle(buffer, stream)
        else:
            self._spare[stream][-1].append(buffer)      # where nobody looks for one

    def close(self) -> None:
        """Close the buffers that are out of use."""
        for by_size in self._spare.values():
            for buffers in by_size.values():
                for buffer in buffers:
                    buffer.close()
        self._spare.clear()
        self._reading.clear()

    def discard(self) -> None:
        """Free all allocations of a failed plan, whoever uses them."""
        for buffer in self.allocated:
            buffer.discard()


class Arguments:
    """Values in the slots of one request."""

    def __init__(self, values: Sequence[ArgumentValue], payload: Payload | None,
                 recording: PassRecorder | None = None, names: Registry | None = None, streams: Streams | None = None):
        self._values = values
        self._names, self._streams = names, streams
        self.payload = payload
        self._recording = recording
        self._buffers: dict[tuple[int, Stream], Buffer] = {}

    def data(self, slot: int) -> np.ndarray:
        """Return a value as uint8."""
        value = self._value(slot)
        nbytes = value_bytes(value)
        if value.data:
            return np.frombuffer(value.data, np.uint8)
        if not nbytes:
            return np.empty(0, np.uint8)
        if self.payload is None:
            raise ProtocolError("an array argument is in a payload that did not come")
        return self.payload.view(value.offset, nbytes)

    def fixed(self, slot: int) -> bytes:
        """Return a value that a kernel is compiled with."""
        data = self.data(slot).tobytes()
        if self._recording is not None:
            self._recording.fix(slot, data)
        return data

    def number(self, slot: int) -> np.generic:
        """Return a value that is passed by value."""
        data, value = self.data(slot), self._value(slot)
        dtype = dtype_of(value.dtype, is_argument=True)
        if value.shape or data.nbytes != dtype.itemsize:
            raise ProtocolError(f"the value in slot {slot} has shape {value.shape}, and a number is passed by value")
        return data.view(dtype)[0]

    def buffer(self, slot: int, device: Device, stream: Stream) -> Buffer:
        """Return an array argument on a device: a copy for each stream, so that none waits for another."""
        if (slot, stream) not in self._buffers and self._value(slot).vrdd:
            self._buffers[slot, stream] = self._table(slot, device, stream)
        if (slot, stream) not in self._buffers:
            data, recording = self.data(slot), self._recording
            buffer = device.allocate(data.nbytes, stream=stream)
            self._buffers[slot, stream] = buffer
            if recording is not None and recording.copies is not None and data.nbytes > INLINE_BYTES:
                recording.copies.upload(slot, buffer, data, stream)
            else:
                data = data if recording is None else recording.stage(slot, data, device)
                device.copy_in(buffer, data, stream=stream)
        return self._buffers[slot, stream]

    def _table(self, slot: int, device: Device, stream: Stream) -> Buffer:
        """Return a table that the session holds, which it is told to hold where its content came along."""
        value = self._value(slot)
        assert self._names is not None and self._streams is not None
        if self._recording is not None:
            self._recording.refused = True      # each pass has another table
        if value.offset >= 0:
            hold(self._names, value, self.data(slot), device, stream)
        return table_buffer(self._names, self._streams, value, device, stream)

    @property
    def buffers(self) -> Iterable[Buffer]:
        """The copies on devices."""
        return self._buffers.values()

    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.close()
        self._buffers.clear()

    def _value(self, slot: int) -> ArgumentValue:
        if not 0 <= slot < len(self._values):
            raise PlanError(f"the plan names value {slot}, and the request brings {len(self._values)}")
        return self._values[slot]
