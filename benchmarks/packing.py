"""Speed at which a task makes a block's bytes of its records: of unpickling before, and of packing."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Case, interleave
from benchmarks.points import FEATURES
from benchmarks.results import Group
from gpu_worker.protocol.messages import Chunk, Run
from gpu_worker.protocol.payload import MARK_BYTES, Payload
from vispark.data.records import Rows, pack
from vispark.runtime.executor.chunked_upload import Pieces, chunk_space

#: Bytes of a block that is packed as it is, in those of small records.
_LARGE = 8


class _Nobody:
    """Client that takes pieces as a worker's would, and copies none of them.

    Parameters
    ----------
    memory : Payload
        Where they lie.
    """

    def __init__(self, memory: Payload):
        self._memory = memory

    def next_number(self) -> int:
        return 0

    def send(self, piece: Chunk, descriptors: Sequence[int]) -> None:
        """Use up at once what is packed."""
        self._memory.view(piece.mark, MARK_BYTES)[:] = 0


def run(nbytes: int, samples: int, done: Callable[[str], None]) -> Group:
    """Measure, for each form of records, unpickling them and packing them into memory that was used before.

    Parameters
    ----------
    nbytes : int
        Bytes of a partition's block where records are small; those that are arrays by themselves have more.
    """
    start, whole = chunk_space(0)
    cases = []
    with Payload.create(whole) as memory:
        memory.array[:] = 1
        memory.used = True
        for name, records, size in _records(nbytes):
            cases.append(Case(f"{name}, packed", lambda records=records: _packed(records, memory, start), size))
            if isinstance(records, list):
                data = pickle.dumps(records, 5)
                cases.append(Case(f"{name}, unpickled", lambda data=data: pickle.loads(data), size,
                                  (f"{name}, packed",)))
        series = interleave(cases, samples, warm_up=1, done=done)
    return Group("packing", {"bytes": nbytes, "samples": samples}, series)


def _packed(records: Any, memory: Payload, start: int) -> None:
    packed = pack(records() if callable(records) else records, seal=bytes)
    pieces = Pieces(_Nobody(memory), Run(0, 0, 0.0, b"", b"", (), ()), memory, start)     # type: ignore[arg-type]
    packed.write_blocks(pieces, 0)
    pieces.finish(packed.block_bytes)


def _records(nbytes: int) -> Iterator[tuple[str, Any, int]]:
    """Yield each form with records of it, or what makes them, and their bytes."""
    width = FEATURES + 1
    rows = np.random.default_rng(0).random((nbytes // 4 // width, width), np.float32)
    tuples = list(map(tuple, rows[:len(rows) // 2].tolist()))
    large = np.random.default_rng(0).random((_LARGE * nbytes // 256, 64), np.float32)
    yield "a block", [(0, large)], large.nbytes
    yield "16 blocks by columns", [(n, part.T) for n, part in enumerate(np.split(large, 16))], large.nbytes
    yield "Rows of an array", lambda: Rows([large]), large.nbytes
    yield "Rows of 16 arrays", lambda: Rows(np.split(large, 16)), large.nbytes
    yield f"arrays of {width}", list(rows), rows.nbytes
    yield "dicts of a number and an array", [{"y": row[0], "x": row[1:]} for row in rows], rows.nbytes
    yield f"tuples of {width} floats", tuples, 8 * width * len(tuples)
    triples = list(map(tuple, rows.reshape(-1)[:nbytes // 24 * 3 // 3 * 3].reshape(-1, 3).tolist()))
    yield "tuples of 3 floats", triples, 24 * len(triples)
    floats = rows.reshape(-1)[:nbytes // 8].tolist()
    yield "floats", floats, 8 * len(floats)
