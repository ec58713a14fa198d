"""Speed at which blocks get from an executor into its worker, against copying them within one process."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import secrets
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.synchronize import Barrier

import numpy as np
from pyspark import SparkContext

from benchmarks.bare import CopyIn
from benchmarks.measure import Case, Series, in_rounds
from benchmarks.results import Group
from benchmarks.session import IN_JVM
from gpu_worker.client.connection import Client, machine, open_lease
from gpu_worker.device import open_devices
from gpu_worker.protocol.messages import Chunk, Release, Report, Run
from gpu_worker.protocol.payload import Payload
from vispark.data.records import pack
from vispark.options import Options
from vispark.plan.lower.lowering import Lowering
from vispark.plan.lower.stages import KEEP
from vispark.plan.ops import DatasetId, PlanNode, Send, ToDevice
from vispark.runtime.executor.client import forget, local_client
from vispark.runtime.executor.client import run as run_plan
from vispark.runtime.executor.tasks import content_of
from vispark.runtime.identity import Credentials
from vispark.runtime.profiling.profiler import TaskSeconds

ONE_COPY, COPIES = "copyto in one process", "copyto in {} processes"
PINNED = "copy to the device, pinned memory"

#: What loading should reach, as a share of the slower of the copies that it consists of.
BAR = 0.6

#: How many tasks send at a time, where there are as many cores: what they hold together must not grow with the machine.
TASKS = 1, 8, 16

#: After how many seconds of rounds no further one begins, of jobs and of processes: both together take a minute.
_JOBS_SECONDS, _ALONE_SECONDS = 6.0, 14.0

#: What share of a block goes through the JVM.
_JVM_SHARE = 8


# -- in the processes -------------------------------------------------------------------------------------------------

@dataclass
class _ProcessBlock:
    """Belongings of a process of a run: a block, room for a copy of it, and the place where it waits for the others."""

    barrier: Barrier | None = None
    block: np.ndarray | None = None
    target: np.ndarray | None = None


_held = _ProcessBlock()


@dataclass(frozen=True)
class TimedAction:
    """Moments at which an action began and ended, on the machine's clock, and the parts of its time, in seconds."""

    start: float
    end: float
    spent: dict[str, float] = field(default_factory=dict)


def held_block(nbytes: int) -> np.ndarray:
    """Return a float32 block of two dimensions, made once in each process."""
    if _held.block is None or _held.block.nbytes != nbytes:
        _held.block = np.random.default_rng(os.getpid()).random((nbytes // 256, 64), np.float32)
    return _held.block


def _initialise(barrier: Barrier, nbytes: int) -> None:
    _held.barrier = barrier
    _held.target = np.ones_like(held_block(nbytes))


def _after_all(action: Callable[[], dict[str, float] | None]) -> TimedAction:
    """Do something once all processes are about to."""
    _held.barrier.wait()
    start = time.monotonic()
    spent = action()
    return TimedAction(start, time.monotonic(), spent or {})


def _copy() -> TimedAction:
    return _after_all(lambda: np.copyto(_held.target, _held.block))


def _fill() -> TimedAction:
    def fill() -> None:
        with Payload.create(_held.block.nbytes) as payload:
            np.copyto(payload.array.view(np.float32).reshape(_held.block.shape), _held.block)
    return _after_all(fill)


def send_block(credentials: Credentials, number: int, to_device: bool, how: str = "") -> TimedAction:
    """Do what a task does: read the records, write them into shared memory, and ask the worker to keep them.

    ``how`` may be "first", for memory as new as for a process's first request, where else it is used again from one
    request to the next; or "unwritten", where nothing is put into the pieces that go to the worker.
    """
    if how == "first":
        forget(local_client(credentials))
    client = local_client(credentials)
    client.request(Report(client.next_number()))
    cached = DatasetId(number, "points")
    chain = (PlanNode(Send()), PlanNode(ToDevice(), cached)) if to_device else (PlanNode(Send(), cached),)

    def send() -> dict[str, float]:
        spent = TaskSeconds()
        packed = pack([(0, _held.block)], seal=credentials.keyring.seal)
        if how == "unwritten":
            packed.write_blocks = lambda *_: None       # type: ignore[method-assign]
        spent.lap("records")
        lowering = Lowering(chain, None, KEEP)
        lowering.add(os.getpid(), content_of(packed))
        invocation = replace(lowering.ship(), profile=True)
        spent.lap("plan")
        with _timed(client) as waits:
            _, reply, _ = run_plan(credentials, invocation, packed)
        spent.lap("packing")
        spent.seconds["packing"] -= sum(waits.values())
        return {**spent.seconds, **waits, "the worker's copies": reply.times.copy_in}

    done = _after_all(send)
    client.request(Release(client.next_number(), (number,)))
    return done


@contextmanager
def _timed(client: Client) -> Iterator[dict[str, float]]:
    """Note the seconds that a client takes meanwhile to send messages, to wait until pieces are copied, and for its
    plan's answer.
    """
    spent: dict[str, float] = defaultdict(float)
    send, receive, wait_until = client.send, client.receive, client.wait_until

    def timed_send(message: Chunk | Run, descriptors: Sequence[int] = ()) -> None:
        start = time.monotonic()
        send(message, descriptors)
        spent["messages"] += time.monotonic() - start

    def timed_receive(number: int) -> tuple:
        start = time.monotonic()
        answer = receive(number)
        spent["answer"] += time.monotonic() - start
        return answer

    def timed_wait(done: Callable[[], bool]) -> None:
        start = time.monotonic()
        wait_until(done)
        spent["waiting for pieces"] += time.monotonic() - start

    client.send, client.receive, client.wait_until = (      # type: ignore[method-assign]
        timed_send, timed_receive, timed_wait)
    try:
        yield spent
    finally:
        del client.send, client.receive, client.wait_until


class Processes:
    """Processes like those of executors, each with a block, that do something at the same time.

    Parameters
    ----------
    count : int
        How many.
    nbytes : int
        Bytes of each one's block.

    Attributes
    ----------
    spent : dict
        By action, what its processes spent their time on, for each time that it was done.
    """

    def __init__(self, count: int, nbytes: int):
        spawn = multiprocessing.get_context("spawn")
        self.count = count
        self.spent: dict[str, list[dict[str, float]]] = defaultdict(list)
        self._pool = ProcessPoolExecutor(count, spawn, _initialise, (spawn.Barrier(count), nbytes))

    def seconds(self, name: str, action: Callable[..., TimedAction], *arguments: object) -> float:
        """Return the seconds from the beginning of the first one to the end of the last one."""
        # Each waits for all, so that none takes two.
        actions = [made.result() for made in [self._pool.submit(action, *arguments) for _ in range(self.count)]]
        self.spent[name] += [done.spent for done in actions if done.spent]
        return max(done.end for done in actions) - min(done.start for done in actions)

    def notes(self, name: str) -> dict[str, object]:
        """Return the median milliseconds of what an action's processes spent their time on."""
        kinds = dict.fromkeys(kind for spent in self.spent[name] for kind in spent)
        return {f"ms_{kind}": 1e3 * statistics.median(spent.get(kind, 0.0) for spent in self.spent[name])
                for kind in kinds}

    def close(self) -> None:
        self._pool.shutdown()


# -- transport alone --------------------------------------------------------------------------------------------------

def alone(kind: str, cores: int, nbytes: int, samples: int, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure pack and request, without Spark, from as many processes as :data:`TASKS` and the machine's cores say.

    The notes of what loads say its rate over the bar, 60 % of the slower of a pinned copy to the device and of copying
    within as many processes, and what a process spent its time on. The group comes again after each round.
    """
    counts = sorted({min(count, cores) for count in TASKS})
    group = Group("transport alone", {"processes": counts, "bytes_each": nbytes, "samples": samples, "device": kind})
    with ExitStack() as stack:
        credentials = Credentials(uuid.uuid4().hex, secrets.token_bytes(32), "benchmarks",
                                  Options.read([("spark.vispark.device", kind)]), machine=machine())
        stack.enter_context(open_lease(credentials.hello("lease", 0)))
        among = [stack.enter_context(closing(Processes(count, nbytes))) for count in counts]
        cases = [case for processes in among for case in _cases(processes, credentials, nbytes)]
        if kind == "cuda":
            cases += _to_device(stack, nbytes)
        for measured in in_rounds(cases, samples, warm_up=1, done=done, seconds=_ALONE_SECONDS):
            for series in measured:
                for processes in among:
                    series.notes.update(processes.notes(series.name))
            note_bar(measured)
            group.series = measured
            yield group


def note_bar(measured: list[Series]) -> None:
    """Note of each series that loads how its rate is to the bar."""
    rates = {series.name: series.rate for series in measured if series.nbytes}
    for series in measured:
        copies = next((name for name in series.against if name != PINNED), "")
        if series.name.startswith("send and htod") and copies in rates:
            slower = min(rates[copies], rates.get(PINNED, rates[copies]))
            series.notes["of_the_bar"] = series.rate / (BAR * slower)


def _cases(processes: Processes, credentials: Credentials, nbytes: int) -> list[Case]:
    count, numbers = processes.count, itertools.count(1 + 1000 * processes.count)
    copies = ONE_COPY if count == 1 else COPIES.format(count)
    among = "in one process" if count == 1 else f"in {count} processes"

    def case(name: str, *action: object, against: tuple[str, ...] = (copies,)) -> Case:
        return Case(name, lambda: processes.seconds(name, *action), nbytes * count, against, times_itself=True,
                    repeat=False)

    def sending(name: str, *how: object, against: tuple[str, ...] = (copies, PINNED)) -> Case:
        return replace(case(name, against=against),
                       run=lambda: processes.seconds(name, send_block, credentials, next(numbers), *how))

    return [
        case(copies, _copy, against=()),
        case(f"new shared memory filled {among}", _fill),
        sending(f"send, kept, {among}", False, against=(copies,)),
        sending(f"send and htod, kept, {among}", True),
        sending(f"send and htod, kept, the first {among}", True, "first"),
        sending(f"pieces with nothing put into them {among}", True, "unwritten", against=(PINNED,)),
    ]


def _to_device(stack: ExitStack, nbytes: int) -> list[Case]:
    device = open_devices("cuda")[0]
    stack.callback(device.close)
    copies = stack.enter_context(closing(CopyIn(device, nbytes)))
    return [Case(PINNED, copies.pinned, nbytes),
            Case("copy to the device, pageable memory", copies.pageable, nbytes, (PINNED,)),
            Case("copy to the device, pinned for it", copies.pinned_each_time, nbytes, (PINNED,))]


# -- a Spark job ------------------------------------------------------------------------------------------------------

def in_a_job(sc: SparkContext, kind: str, cores: int, nbytes: int, samples: int,
             done: Callable[[str], None]) -> Iterator[Group]:
    """Measure Spark jobs whose tasks have a block at hand and send it, against jobs that only look at it.

    Then the same of blocks that lie in the JVM, which tasks read from a pipe and unpickle. The group comes again after
    each round.
    """
    partitions = min(cores, max(TASKS))
    group = Group("transport in a Spark job", {"partitions": partitions, "bytes_each": nbytes, "samples": samples,
                                               "bytes_each_in_jvm": nbytes // _JVM_SHARE, "device": kind})
    numbers = sc.parallelize(range(partitions), partitions)
    blocks = numbers.map(lambda index: (index, held_block(nbytes)))
    in_jvm = numbers.map(lambda index: (index, held_block(nbytes)[:nbytes // 256 // _JVM_SHARE])).persist(IN_JVM)
    looking, reading = "a job that looks at the blocks", "a job that takes blocks from the JVM"
    moved = nbytes * partitions
    cases = [
        Case(looking, lambda: blocks.mapValues(len).count(), repeat=False),
        Case("send, kept", _job(lambda: blocks.send(), partitions), moved, (looking,), False, True),
        Case("send and htod, kept", _job(lambda: blocks.send().htod(), partitions), moved, (looking,), False, True),
        Case(reading, lambda: in_jvm.mapValues(len).count(), moved // _JVM_SHARE, repeat=False),
        Case("send and htod, kept, from the JVM", _job(lambda: in_jvm.send().htod(), partitions), moved // _JVM_SHARE,
             (reading,), False, True)]
    for measured in in_rounds(cases, samples, warm_up=2, done=done, seconds=_JOBS_SECONDS):
        least = {series.name: series.median for series in measured}
        group.series = [each for series in measured for each in _net(series, least)]
        yield group


def _job(kept: Callable, partitions: int) -> Callable[[], float]:
    def job() -> float:
        vrdd = kept().cache()
        start = time.perf_counter()
        assert vrdd.count() == partitions
        seconds = time.perf_counter() - start
        vrdd.unpersist()
        return seconds
    return job


def _net(series: Series, least: dict[str, float]) -> list[Series]:
    """Return a series, and, where it sends, what it takes beyond a job that does not."""
    if not series.against:
        return [series]
    beyond = tuple(max(sample - least[series.against[0]], 1e-9) for sample in series.samples)
    return [series, Series(f"{series.name}: beyond that job", beyond, nbytes=series.nbytes)]
