"""Rows of several lengths and sparse vectors as arrays and back, whatever they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pyspark.ml.linalg import SparseVector

from gpu_worker.protocol.errors import RecordError
from gpu_worker.protocol.payload import Payload, field_offsets
from tests.system.vrdd_tools import exact
from vispark.data.records import RecordLayout, pack, unpack

DTYPES = st.sampled_from(["f4", "f8", "i4", "u1", "?", "c8", ">f8"])


def came_back(records: list) -> list:
    packed = pack(records, seal=bytes)
    layout = RecordLayout.decode(packed.layout.encode())
    payload = Payload.create(packed.nbytes)
    try:
        packed.write(payload, 0)
        keys, offset = payload.view(0, len(packed.keys)).tobytes(), packed.key_bytes
        blocks = [{field.name: payload.view(start, np.dtype(field.dtype).itemsize * int(np.prod(field.shape))).view(
            field.dtype).reshape(field.shape).copy() for field, start in field_offsets(signature, offset)}
            for signature in packed.signatures]
    finally:
        payload.close()
    return list(unpack(layout, packed.count, keys, blocks, open=bytes))


@settings(max_examples=60, deadline=None)
@given(st.data(), DTYPES, st.lists(st.integers(0, 9), min_size=1, max_size=12), st.sampled_from(["", "dict", "pair"]))
def test_rows_come_back_as_they_were(data: st.DataObject, dtype: str, lengths: list[int], form: str):
    rows = [data.draw(arrays.arrays(dtype, length)) for length in lengths]
    records = [{"x": row, "n": len(row)} for row in rows] if form == "dict" else \
        [(str(number), row) for number, row in enumerate(rows)] if form == "pair" else rows
    assert exact(came_back(records)) == exact(records)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2**31 - 1)), min_size=1, max_size=8))
def test_sparse_vectors_come_back_as_they_were(sizes: list[tuple[int, int]]):
    vectors = []
    for size, seed in sizes:
        random = np.random.default_rng(seed)
        places = np.sort(random.choice(size, random.integers(0, size + 1), replace=False)) if size else []
        vectors.append(SparseVector(size, places, random.random(len(places))))
    back = came_back(vectors)
    assert back == vectors and [each.size for each in back] == [each.size for each in vectors]
    assert [each["v"] for each in came_back([{"v": each, "y": 1} for each in vectors])] == vectors


def test_what_is_refused():
    with pytest.raises(RecordError):
        pack([SparseVector(3, [0], [1.0]), np.ones(3)], seal=bytes)
    with pytest.raises(RecordError, match="sparse vectors stand beside arrays"):
        pack([{"a": SparseVector(3, [0], [1.0]), "b": np.eye(2)}], seal=bytes)
