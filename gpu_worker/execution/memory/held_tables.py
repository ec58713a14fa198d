"""Tables that a session holds, as arguments of kernels: by key, on the device that a kernel runs on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Buffer, Device, Source, Stream
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.execution.memory.row_chunks import chunk_of, row_bytes
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import ArgumentValue, Field

SOURCE = Source((Path(__file__).parent / "tables.cu").read_text(), file="tables.cu")

#: The only partition of a table, and the fields of its rows: their keys, in ascending order, and their values.
TABLE, KEYS, VALUES = 0, "0", "1"


def table_buffer(names: Registry, streams: Streams, value: ArgumentValue, device: Device, stream: Stream) -> Buffer:
    """Return a table's values by key on a device, valid for later work on the stream; rows of keys that do not occur
    are zeros.

    Raises
    ------
    PartitionMissing
        If the table is not held.
    PlanError
        If it is none of this shape.
    """
    table = names.lookup(value.vrdd, TABLE)
    try:
        values, keys = _arrays(table, value)
        if values is not None and values.buffer is not None and table.device is device \
                and table.count == value.shape[0]:
            return values.buffer.share()
        nbytes = np.dtype(value.dtype).itemsize * math.prod(value.shape)
        buffer = device.allocate(nbytes, stream=stream)
        if values is not None and values.buffer is not None and keys is not None and table.device is device:
            _spread(table, values, keys, buffer, value, stream)
            return buffer
        rows = _by_key(table, values, keys, value, streams.main(table.device))
        device.copy_in(buffer, rows.reshape(-1).view(np.uint8), stream=stream)
        device.synchronize(stream=stream)       # `rows` is nobody's afterwards
        return buffer
    finally:
        table.close()


def hold(names: Registry, value: ArgumentValue, data: np.ndarray, device: Device, stream: Stream) -> None:
    """Hold a table whose values by key came with a request, unless it is held already."""
    count = value.shape[0]
    buffer = device.allocate(data.nbytes, stream=stream)
    device.copy_in(buffer, data, stream=stream)
    device.synchronize(stream=stream)
    array = HeldArray(Field(VALUES, value.dtype, value.shape), buffer=buffer)
    names.bind(value.vrdd, "a table", Partition(TABLE, count, None, b"", [(array,)], device))


def _arrays(table: Partition, value: ArgumentValue) -> tuple[HeldArray | None, HeldArray | None]:
    """Return the values and the keys of a table's rows; none where it has no rows, no keys where it has all rows."""
    if not table.count or not table.blocks:
        return None, None
    named = {array.field.name: array for array in table.blocks[0]}
    values = named.get(VALUES)
    if values is None or replace(values.field, shape=()) != Field(VALUES, value.dtype, ()) \
            or values.field.shape[1:] != value.shape[1:] or table.count > value.shape[0]:
        fields = ", ".join(f"{each.field.dtype} {each.field.shape}" for each in named.values())
        raise PlanError(f"an argument is the table {value.vrdd} of {value.dtype[:40]} and shape {value.shape[:8]}, and "
                        f"the table has {fields}")
    return values, named.get(KEYS)


def _by_key(table: Partition, values: HeldArray | None, keys: HeldArray | None, value: ArgumentValue,
            stream: Stream) -> np.ndarray:
    """Return the values by key, in host memory."""
    rows = np.zeros(value.shape, value.dtype)
    if values is None:
        return rows
    looked_up = _on_host(table, values, stream)
    if table.count == value.shape[0] or keys is None:
        return looked_up
    rows[_on_host(table, keys, stream)] = looked_up
    return rows


def _spread(table: Partition, values: HeldArray, keys: HeldArray, target: Buffer, value: ArgumentValue,
            stream: Stream) -> None:
    """Write the rows by key on the table's own device."""
    places = np.full(value.shape[0], -1, np.int64)
    places[_on_host(table, keys, stream)] = np.arange(table.count)
    nbytes = row_bytes(values)
    if not nbytes:
        return
    size, chunk = chunk_of(nbytes)
    indices = table.device.allocate(places.nbytes, stream=stream)
    try:
        table.device.copy_in(indices, places.view(np.uint8), stream=stream)
        chunks = nbytes // size
        threads = value.shape[0] * chunks if table.device.asynchronous else 1
        table.device.launch(table.device.compile(SOURCE, f"rows_by_key<{chunk}>"), (min(-(-threads // 256), 1 << 16),),
                            (256,), [values.on_device, target, indices, np.int64(value.shape[0]), np.int64(chunks)],
                            stream=stream)
        table.device.synchronize(stream=stream)
    finally:
        indices.close()


def _on_host(table: Partition, array: HeldArray, stream: Stream) -> np.ndarray:
    """Return an array's elements."""
    if array.host is None:
        host = np.empty(array.nbytes, np.uint8)
        table.device.copy_out(host, array.on_device, stream=stream)
        table.device.synchronize(stream=stream)
    else:
        host = array.host
    return host.view(array.field.dtype).reshape(array.field.shape)
