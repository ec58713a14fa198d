"""The kernels of row_exchange.cu, against NumPy and Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from gpu_worker.device.memory.partition import Block, HeldArray
from gpu_worker.execution.keys import row_exchange
from gpu_worker.execution.keys.keyed_rows import RowOrder, ordered
from gpu_worker.execution.keys.row_exchange import OrderedExchange, RowExchange
from gpu_worker.protocol.messages import Field
from tests.device.bench import DeviceBench
from tests.device.test_keyed_rows import Plain, keys_of

_TILE = 4096


class ExchangeMemory(NamedTuple):
    """A device with memory for exchanges."""

    bench: DeviceBench
    scratch: Plain

    def block(self, *arrays: np.ndarray) -> Block:
        """Return the fields "0", "1" and so on of rows."""
        held = [HeldArray(Field(str(name), array.dtype.str, array.shape), buffer=self.bench.put(array))
                for name, array in enumerate(arrays)]
        self.scratch.allocated += [each.buffer for each in held]
        return tuple(held)

    def made(self, blocks: list[Block], parts: int) -> RowExchange:
        return RowExchange(blocks, [block[0] for block in blocks], parts, self.bench.device, self.bench.stream,
                           self.scratch)

    def moved(self, exchange: RowExchange | OrderedExchange, shapes: list[tuple[tuple[int, ...], str]]) -> list:
        """Return the rows that come out, one array a field, whose partitions lie behind each other with a gap of 256
        bytes.
        """
        self.bench.device.synchronize(stream=self.bench.stream)
        rows = exchange.rows.astype(np.int64)
        arrays, bases, targets = [], [], []
        for shape, dtype in shapes:
            row = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
            offsets = np.cumsum([0, *(rows * row + 256) // 256 * 256])
            targets.append((self.bench.put(np.zeros(offsets[-1], "u1")), offsets, row))
            bases.append(targets[-1][0].address + offsets[:-1])
        exchange.move(np.array(bases, np.uint64))
        for (buffer, offsets, row), (shape, dtype) in zip(targets, shapes, strict=True):
            data = self.bench.get(buffer, int(offsets[-1]), "u1")
            arrays.append(np.concatenate([data[at:at + count * row].view(dtype).reshape(count, *shape)
                                          for at, count in zip(offsets[:-1], rows, strict=True)]))
            buffer.close()
        return arrays


@pytest.fixture(params=["", "-DVISPARK_ALONE=0"])
def exchanges(request: pytest.FixtureRequest, bench: DeviceBench, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Yield the maker of exchanges; on a CPU also as a GPU does it."""
    if request.param:
        if bench.device.kind != "host":
            pytest.skip("a GPU has one way")
        source = row_exchange.Source(row_exchange.SOURCE.text, "row_exchange.cu", (request.param,))
        monkeypatch.setattr(row_exchange, "SOURCE", source)
    scratch = Plain(bench)
    yield ExchangeMemory(bench, scratch)
    for buffer in scratch.allocated:
        buffer.close()


SHAPES = [((), "f8"), ((3,), "f4"), ((2, 4), "f4"), ((5,), "u1"), ((0,), "f4"), ((3,), "u2")]


@pytest.mark.parametrize(("dtype", "parts"), [("i8", 64), ("f8", 300), ("b1", 1)])
def test_rows_go_where_pythons_hash_says_and_keep_their_order(exchanges: ExchangeMemory, dtype: str, parts: int):
    random = np.random.default_rng(parts)
    counts = [_TILE + 77, 1, 2 * _TILE, 33]
    keys = keys_of(dtype, sum(counts), random)
    values = [np.frombuffer(random.bytes(len(keys) * int(np.prod(shape, dtype=int)) * np.dtype(each).itemsize), each)
              .reshape(len(keys), *shape) for shape, each in SHAPES]
    edges = np.cumsum([0, *counts])
    blocks = [exchanges.block(*[array[first:last] for array in (keys, *values)])
              for first, last in itertools.pairwise(edges.tolist())]
    exchange = exchanges.made(blocks, parts)
    exchange.count()
    keys_found, *columns = exchanges.moved(exchange, [((), dtype), *SHAPES])
    parts_of = np.array([hash(key) % parts for key in keys.tolist()])
    order = np.argsort(parts_of, kind="stable")
    np.testing.assert_array_equal(exchange.rows, np.bincount(parts_of, minlength=parts))
    assert keys_found.tobytes() == keys[order].tobytes()
    for moved, array in zip(columns, values, strict=True):
        assert moved.tobytes() == array[order].tobytes()
    assert exchange.wrong[0] == 0
    exchange.close()


@pytest.mark.parametrize(("dtype", "descending"), [("i8", True), ("f4", False)])
def test_rows_go_to_the_ranges_of_bounds(exchanges: ExchangeMemory, dtype: str, descending: bool):
    keys = keys_of(dtype, 6000, np.random.default_rng(2))
    bounds = np.sort(keys[10:6000:501])
    rows = np.arange(6000)
    exchange = exchanges.made([exchanges.block(keys, rows)], len(bounds) + 1)
    exchange.count(np.sort(ordered(bounds)), descending=descending)
    _, moved = exchanges.moved(exchange, [((), dtype), ((), "i8")])
    below = np.searchsorted(bounds, keys, side="left")
    np.testing.assert_array_equal(moved, np.argsort(len(bounds) - below if descending else below, kind="stable"))


def test_one_key_for_all_and_keys_that_are_no_numbers(exchanges: ExchangeMemory):
    keys = np.full(9000, 7.0, "f4")
    exchange = exchanges.made([exchanges.block(keys, np.arange(9000))], 64)
    exchange.count()
    _, moved = exchanges.moved(exchange, [((), "f4"), ((), "i8")])
    assert (exchange.rows[7], exchange.wrong[0]) == (9000, 0)
    np.testing.assert_array_equal(moved, np.arange(9000))
    keys[[3, 5000]] = np.nan
    exchange = exchanges.made([exchanges.block(keys)], 64)
    exchange.count()
    exchanges.bench.device.synchronize(stream=exchanges.bench.stream)
    assert exchange.wrong[0] == 2


def test_more_partitions_by_an_order_of_the_rows(exchanges: ExchangeMemory):
    keys, bench = np.random.default_rng(5).integers(0, 1 << 40, 5000), exchanges.bench
    block = exchanges.block(keys, np.arange(5000))
    exchange = OrderedExchange(block, RowOrder(block[0], bench.device, bench.stream, exchanges.scratch), 3000)
    exchange.count()
    _, moved = exchanges.moved(exchange, [((), "i8"), ((), "i8")])
    np.testing.assert_array_equal(moved, np.argsort(keys % 3000, kind="stable"))
    exchange.close()
