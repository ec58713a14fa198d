"""How fast blocks get from an executor into its worker, against copying them within one process."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import secrets
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier

import numpy as np
from pyspark import SparkContext

from benchmarks.bare import CopyIn
from benchmarks.measure import Case, Series, interleave
from benchmarks.results import Group
from gpu_worker.client import open_lease
from gpu_worker.device import open_devices
from gpu_worker.protocol.messages import Release, Report
from gpu_worker.protocol.payload import Payload
from vispark.bridge import Credentials, content_of, forget, local_client
from vispark.bridge import run as run_plan
from vispark.lower import Lowering
from vispark.options import Options
from vispark.plan import Cached, Node, Send, ToDevice
from vispark.records import pack
from vispark.rewrite import KEEP

ONE_COPY, COPIES = "copyto in one process", "copyto in {} processes"
PINNED = "copy to the device, pinned memory"

#: What loading should reach, as a share of the slower of the copies that it consists of; and as many tasks beside
#: those of all cores.
BAR, _TASKS = 0.6, 8


# -- in the processes -------------------------------------------------------------------------------------------------

@dataclass
class _Held:
    """What a process of a run keeps: a block, room for a copy of it, and where it waits for the others."""

    barrier: Barrier | None = None
    block: np.ndarray | None = None
    room: np.ndarray | None = None


_held = _Held()


def held_block(nbytes: int) -> np.ndarray:
    """A float32 block of two dimensions, made once in each process."""
    if _held.block is None or _held.block.nbytes != nbytes:
        _held.block = np.random.default_rng(os.getpid()).random((nbytes // 256, 64), np.float32)
    return _held.block


def _initialise(barrier: Barrier, nbytes: int) -> None:
    _held.barrier = barrier
    _held.room = np.ones_like(held_block(nbytes))


def _after_all(action: Callable[[], object]) -> tuple[float, float]:
    """Do something once all processes are about to; when it began and ended, on the machine's clock."""
    _held.barrier.wait()
    start = time.monotonic()
    action()
    return start, time.monotonic()


def _copy() -> tuple[float, float]:
    return _after_all(lambda: np.copyto(_held.room, _held.block))


def _fill() -> tuple[float, float]:
    def fill() -> None:
        with Payload.create(_held.block.nbytes) as payload:
            np.copyto(payload.array.view(np.float32).reshape(_held.block.shape), _held.block)
    return _after_all(fill)


def _pack(secret: bytes) -> tuple[float, float]:
    return _after_all(lambda: pack([(0, _held.block)], seal=lambda keys: keys))


def _send(credentials: Credentials, number: int, to_device: bool, first: bool = False) -> tuple[float, float]:
    """What a task does: read the records, write them into shared memory, and ask the worker to keep them.

    Memory is used again from one request to the next, unless it is to be as for the ``first`` one of a process.
    """
    if first:
        forget(local_client(credentials))
        client = local_client(credentials)
        client.request(Report(client.next_number()))
    cached = Cached(number, "points")
    chain = (Node(Send()), Node(ToDevice(), cached)) if to_device else (Node(Send(), cached),)

    def send() -> None:
        packed = pack([(0, _held.block)], seal=credentials.keyring.seal)
        lowering = Lowering(chain, None, KEEP)
        lowering.add(os.getpid(), content_of(packed))
        run_plan(credentials, lowering.ship(), packed)

    times = _after_all(send)
    client = local_client(credentials)
    client.request(Release(client.next_number(), (number,)))
    return times


class Processes:
    """Processes like those of executors, each with a block, that do something at the same time.

    Parameters
    ----------
    count : int
        How many.
    nbytes : int
        Bytes of each one's block.
    """

    def __init__(self, count: int, nbytes: int):
        spawn = multiprocessing.get_context("spawn")
        self.count = count
        self._pool = ProcessPoolExecutor(count, spawn, _initialise, (spawn.Barrier(count), nbytes))

    def seconds(self, action: Callable[..., tuple[float, float]], *arguments: object) -> float:
        """From when the first one began to when the last one was done."""
        # Each waits for all, so that none takes two.
        times = [made.result() for made in [self._pool.submit(action, *arguments) for _ in range(self.count)]]
        return max(end for _, end in times) - min(start for start, _ in times)

    def close(self) -> None:
        self._pool.shutdown()


# -- transport alone --------------------------------------------------------------------------------------------------

def alone(kind: str, processes: int, nbytes: int, samples: int, done: Callable[[str], None]) -> Group:
    """Measure pack and request, without Spark, from one process, from eight and from as many as there are cores.

    The notes of what loads say its rate over the bar: 60 % of the slower of a pinned copy to the device and of
    copying within as many processes.
    """
    group = Group("transport alone", {"processes": processes, "bytes_each": nbytes, "samples": samples,
                                      "device": kind})
    with ExitStack() as stack:
        credentials = Credentials(uuid.uuid4().hex, secrets.token_bytes(32), "benchmarks",
                                  Options.read([("spark.vispark.device", kind)]))
        stack.enter_context(open_lease(credentials.hello("lease", 0)))
        cases = [case for count in sorted({1, min(_TASKS, processes), processes}) for case in _cases(
            stack.enter_context(closing(Processes(count, nbytes))), credentials, nbytes)]
        if kind == "cuda":
            cases += _to_device(stack, nbytes)
        group.series = interleave(cases, samples, warm_up=2, done=done)
    note_bar(group.series)
    return group


def note_bar(found: list[Series]) -> None:
    """Note of each series that loads how its rate is to the bar."""
    rates = {series.name: series.rate for series in found if series.nbytes}
    for series in found:
        copies = next((name for name in series.against if name != PINNED), "")
        if series.name.startswith("send and htod") and copies in rates:
            slower = min(rates[copies], rates.get(PINNED, rates[copies]))
            series.notes["of_the_bar"] = series.rate / (BAR * slower)


def _cases(processes: Processes, credentials: Credentials, nbytes: int) -> list[Case]:
    count, numbers = processes.count, itertools.count(1 + 1000 * processes.count)
    copies = ONE_COPY if count == 1 else COPIES.format(count)
    among = "in one process" if count == 1 else f"in {count} processes"

    def case(name: str, *action: object, against: tuple[str, ...] = (copies,)) -> Case:
        return Case(name, lambda: processes.seconds(*action), nbytes * count, against, times_itself=True, repeat=False)

    def sending(*how: bool) -> Callable[[], float]:
        return lambda: processes.seconds(_send, credentials, next(numbers), *how)

    return [
        case(copies, _copy, against=()),
        case(f"new shared memory filled {among}", _fill),
        replace(case(f"send, kept, {among}"), run=sending(False)),
        replace(case(f"send and htod, kept, {among}", against=(copies, PINNED)), run=sending(True)),
        replace(case(f"send and htod, kept, the first {among}", against=(copies, PINNED)), run=sending(True, True)),
    ]


def _to_device(stack: ExitStack, nbytes: int) -> list[Case]:
    device = open_devices("cuda")[0]
    stack.callback(device.close)
    copies = stack.enter_context(closing(CopyIn(device, nbytes)))
    return [Case(PINNED, copies.pinned, nbytes),
            Case("copy to the device, pageable memory", copies.pageable, nbytes, (PINNED,)),
            Case("copy to the device, pinned for it", copies.pinned_each_time, nbytes, (PINNED,))]


# -- a Spark job ------------------------------------------------------------------------------------------------------

def in_a_job(sc: SparkContext, kind: str, partitions: int, nbytes: int, samples: int,
             done: Callable[[str], None]) -> Group:
    """Measure Spark jobs whose tasks have a block at hand and send it, against jobs that only look at it."""
    group = Group("transport in a Spark job", {"partitions": partitions, "bytes_each": nbytes, "samples": samples,
                                               "device": kind})
    blocks = sc.parallelize(range(partitions), partitions).map(lambda index: (index, held_block(nbytes)))
    looking = "a job that looks at the blocks"
    cases = [Case(looking, lambda: blocks.mapValues(len).count(), repeat=False)]
    for name, kept in (("send", lambda: blocks.send()), ("send and htod", lambda: blocks.send().htod())):
        cases.append(Case(f"{name}, kept", _job(kept, partitions), nbytes * partitions, (looking,), repeat=False,
                          times_itself=True))
    measured = interleave(cases, samples, warm_up=3, done=done)
    group.series = [each for series in measured for each in _net(series, measured[0])]
    return group


def _job(kept: Callable, partitions: int) -> Callable[[], float]:
    def job() -> float:
        vrdd = kept().cache()
        start = time.perf_counter()
        assert vrdd.count() == partitions
        seconds = time.perf_counter() - start
        vrdd.unpersist()
        return seconds
    return job


def _net(series: Series, looking: Series) -> list[Series]:
    """A series, and, where it sends, what it takes beyond a job that does not."""
    if not series.nbytes:
        return [series]
    beyond = tuple(max(sample - looking.median, 1e-9) for sample in series.samples)
    return [series, Series(f"{series.name}: beyond that job", beyond, nbytes=series.nbytes)]
