"""Any partition comes back from shared memory as it went in: types, dtypes, byte order, bits."""

from __future__ import annotations

import mmap
import os
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpu_worker.protocol.payload import Payload, aligned, block_bytes, field_offsets
from vispark.data.records import Keyring, RecordLayout, pack, unpack

RING = Keyring(b"the secret of one session")

DTYPES = st.sampled_from([np.dtype(order + char) for char in "?bhilBHILefdgFDG" for order in "<>"])
NATIVE = st.sampled_from([np.dtype(char) for char in "?bhilBHILefdgFDG"])
PYTHON = st.sampled_from([st.integers(-2**63, 2**63 - 1), st.floats(), st.booleans(), st.complex_numbers()])
SMALL = st.sampled_from([st.integers(-2**53, 2**53), st.floats(), st.booleans(),
                         st.integers(-100, 100).map(np.int16), st.floats(width=32).map(np.float32)])
KEYS = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
                    lambda inner: st.tuples(inner) | st.tuples(inner, inner) | st.frozensets(inner), max_leaves=4)


def arrays(dtype, shape):
    """Return arrays of any bits, some of them not contiguous, in Fortran's order, or read-only."""
    count = int(np.prod(shape))
    raw = (st.lists(st.booleans(), min_size=count, max_size=count).map(lambda bits: np.array(bits, np.bool_))
           if dtype.kind == "b" else st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)
           .map(lambda data: np.frombuffer(data, dtype)))
    return st.builds(_lay, raw.map(lambda array: array.reshape(shape)), st.sampled_from("CFRS"))


def _lay(array, how):
    if how == "F" and array.ndim:
        return np.asfortranarray(array)
    if how == "S":
        return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
    return array.copy() if how == "C" else array


def scalars(dtype):
    return arrays(dtype, ()).map(lambda array: array[()])


@st.composite
def part(draw, ndim):
    """Return a strategy for values of one type with so many dimensions."""
    if ndim == 0 and draw(st.booleans()):
        return draw(PYTHON)
    if ndim == 0 and draw(st.booleans()):
        return scalars(draw(NATIVE))
    dtype = draw(DTYPES)
    if ndim < 2:
        return arrays(dtype, (draw(st.integers(0, 5)),) * ndim)
    return hnp.array_shapes(min_dims=ndim, max_dims=ndim, min_side=0, max_side=3).flatmap(
        lambda shape: arrays(dtype, shape))


@st.composite
def partitions(draw):
    """Return partitions of all forms."""
    form = draw(st.sampled_from(["plain", "tuple", "tuple with rows", "dict"]))
    if form == "plain":
        values = draw(part(draw(st.integers(0, 3))))
    elif form == "tuple":
        values = st.tuples(*draw(st.lists(SMALL, min_size=1, max_size=5).filter(lambda parts: len(parts) != 2)))
    elif form == "tuple with rows":
        fields = [draw(part(1)), *[draw(part(draw(st.integers(0, 1)))) for _ in range(draw(st.integers(2, 3)))]]
        values = st.tuples(*draw(st.permutations(fields)))
    else:
        names = draw(st.lists(st.text(min_size=1), min_size=1, max_size=3, unique=True))
        fields = [draw(part(draw(st.integers(0, 2)))) for _ in names]
        values = st.tuples(*fields).map(lambda values: dict(zip(names, values, strict=True)))
    records = draw(st.lists(values, max_size=5))
    if draw(st.booleans()):
        keys = draw(st.sampled_from([KEYS, st.integers(0, 9).map(np.int32)]))
        records = [(draw(keys), record) for record in records]
    return records


def transfer(records):
    packed = pack(iter(records), seal=RING.seal)
    with Payload.create(packed.nbytes) as sent:
        packed.write(sent, 0)
        received = Payload.receive(os.dup(sent.descriptor), mmap.ACCESS_COPY)
    offset = aligned(len(packed.keys))
    blocks = []
    for signature in packed.signatures:
        blocks.append({field.name: received.field(field, start) for field, start in field_offsets(signature, offset)})
        offset += block_bytes(signature)
    assert offset == packed.nbytes
    keys = received.view(0, len(packed.keys)).tobytes()
    received.close()
    layout = RecordLayout.decode(packed.layout.encode())
    return list(unpack(layout, packed.count, keys, blocks, open=RING.open))


def image(value):
    """Everything about a value that must come back."""
    if isinstance(value, tuple):
        return tuple(map(image, value))
    if isinstance(value, dict):
        return [(name, image(field)) for name, field in value.items()]
    if isinstance(value, bool | int | float | complex | np.ndarray | np.generic) and _holds(value):
        array = np.asarray(value)
        raw = np.frombuffer(array.tobytes(), np.uint8)
        if array.dtype.char in "gG":        # 80 bits, or 2 x 80, and padding on either side
            raw = raw.reshape(-1, 16)
            raw = raw[:, :10] if array.dtype.isnative else raw[:, 6:]
        kind = np.ndarray if isinstance(value, np.ndarray) else type(value)
        return kind, array.dtype, array.shape, raw.tobytes()
    return type(value), value


def _holds(value):
    return not isinstance(value, int) or -2**63 <= value < 2**63


def owned(value):
    if isinstance(value, dict):
        return all(map(owned, value.values()))
    if isinstance(value, tuple):
        return owned(value[-1])
    return not isinstance(value, np.ndarray) or (value.flags.writeable and value.flags.c_contiguous)


@settings(max_examples=300, deadline=None)
@given(partitions())
def test_comes_back_as_it_was(records):
    back = transfer(records)
    assert list(map(image, back)) == list(map(image, records))
    assert all(map(owned, back))


@settings(max_examples=100, deadline=None)
@given(partitions())
def test_layouts_of_parts_of_a_partition_are_equal(records):
    # But for the type of keys, of which a part may have fewer.
    layouts = {replace(pack(each, seal=RING.seal).layout, key="")
               for each in (records, records[:1], records[::-1]) if each}
    assert len(layouts) <= 1
