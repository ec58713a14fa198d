"""The n-th call refused: descriptors, memory, writes and threads, at every site in a daemon and a device process.

A program: ``python -m tests.chaos.refusals [--most N] [--every N] [--jobs N]`` prints how many refusals ended well, in
a typed error, in the end of the process, in a wrong answer, in a lost value, or in none at all within a time.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import mmap
import os
import struct
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, Queue

import numpy as np

from gpu_worker.client.connection import Client, connect
from gpu_worker.protocol.errors import PartitionMissing, VisparkError, WorkerUnavailable
from gpu_worker.protocol.grids import ExchangeStep, IterateStep, Phase, StencilStep
from gpu_worker.protocol.messages import (
    ArrayArgument,
    ExecStep,
    FetchStep,
    Field,
    FieldFold,
    FoldStep,
    In,
    Input,
    KeepStep,
    Launch,
    LoadStep,
    Out,
    Plan,
    PutStep,
    Ran,
    Release,
    Report,
    Run,
    Signature,
    ToDeviceStep,
    ToHostStep,
    Variant,
)
from gpu_worker.protocol.payload import Data, Payload, aligned, results
from gpu_worker.protocol.plans import sealed
from gpu_worker.protocol.wire import close_all
from gpu_worker.system.admin import stop
from tests import leaks
from tests.system.worker_tools import eventually, hello
from tests.unit.plans import Bench
from tests.unit.test_patches_worker import HALO, GridBench, spread

SECONDS = 40.0
DEVICE, DAEMON = 1, 2

#: What is refused, by its number in ``refuse.c``, and with which errors.
CALLS = {
    "mmap": (1, errno.ENOMEM), "posix_memalign": (2, errno.ENOMEM), "memfd_create": (3, errno.EMFILE),
    "ftruncate": (4, errno.ENOSPC), "write": (5, errno.ENOSPC), "pwrite": (6, errno.ENOSPC),
    "sendmsg": (7, errno.ENOBUFS), "recvmsg": (8, errno.ENOMEM), "pthread_create": (9, errno.EAGAIN),
    "accept": (10, errno.EMFILE), "open": (11, errno.EMFILE), "dup": (12, errno.EMFILE),
    "epoll_ctl": (13, errno.ENOMEM), "socket": (14, errno.EMFILE), "socketpair": (15, errno.EMFILE),
    "pipe": (16, errno.EMFILE), "malloc": (17, errno.ENOMEM), "fork": (18, errno.EAGAIN),
}

BLOCK = np.arange(40_000, dtype="<f4").reshape(100, 400)
SIGNATURE = Signature((Field("", "<f4", BLOCK.shape),))


def plan(*steps: object) -> tuple[bytes, bytes]:
    return sealed(Plan(tuple(steps), (), (Variant(SIGNATURE, (), (b"",), (-1,)),),
                       (Input(0, 100, 0, 0, b"", (0,)),), ()))


PUT = plan(PutStep(), ToDeviceStep(), KeepStep(0, "x", "device"))
PUT_ON_HOST = plan(PutStep(), KeepStep(0, "x", "host"))
FETCH = plan(LoadStep(0), FetchStep(-1, "rows"))
TO_HOST = plan(LoadStep(0), ToHostStep(), KeepStep(1, "y", "host"))
FOLD = plan(LoadStep(0), FoldStep((FieldFold("", "add"),), "rows"))

CELLS = np.random.default_rng(3).random((7, 10), "f4")
STEP = ExchangeStep("exchange", (HALO,)), StencilStep("spread", 0)
LOOP = IterateStep("loop", (Phase("spread", (HALO,), 0),), 5, 0, -1.0, 1, 0)
#: Threads that wait for each other have stacks of their own, and many blocks are for more than one processor.
EXEC = """extern "C" __global__ void twice(const float* in, float* out, const float* table)
{
    __shared__ float mine[32];
    mine[threadIdx.x] = in[blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = 2 * mine[31 - threadIdx.x] + table[threadIdx.x];
}"""
LAUNCH = Launch((1250,), (32,), 0, (In(""), Out(""), ArrayArgument(0)), SIGNATURE.fields, kernel="twice")


class RemoteBench(Bench):
    """Bench whose worker is reached over a client's connection."""

    def __init__(self, client: Client):
        super().__init__(None)
        self._client = client

    def run(self, plan: Plan, vrdds: Sequence[int], values: Sequence[np.ndarray] = (), *,
            known: bool = False, descriptors: Sequence[int] = ()) -> tuple[Ran, Data]:
        try:
            request = replace(self.request(plan, vrdds, values, known=known), number=self._client.next_number(),
                              epoch=self._client.epoch)
            reply, received = self._client.request(request, list(descriptors))
        finally:
            close_all(descriptors)
        return reply, results(reply.data, received)


@dataclass
class Refusals:
    """A worker whose calls can be refused, and what came of it.

    Parameters
    ----------
    directory : Path
        An empty one.
    """

    directory: Path
    outcomes: Counter[str] = field(default_factory=Counter)
    #: What did not end well, told for people.
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        library, control = self.directory / "refuse.so", self.directory / "control"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, Path(__file__).with_name("refuse.c"), "-ldl"],
                       check=True)
        control.write_bytes(bytes(4096))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 4096)
        self._environment = {"LD_PRELOAD": str(library), "VISPARK_REFUSE": str(control),
                             "VISPARK_RUNTIME_DIR": str(self.directory / "rt"),
                             "VISPARK_FAILPOINTS": str(self.directory)}
        self._numbers = iter(range(100, 1 << 30))
        #: Numbers of values that may be there still: what was refused came to no release.
        self._passing: list[int] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[Refusals]:
        """Yield a worker that holds a value under number 1, ended afterwards."""
        before = {name: os.environ.get(name) for name in self._environment}
        os.environ |= self._environment
        try:
            with self.client() as client:
                self.put(client, 1)
                self.warm(client)
            yield self
        finally:
            self.disarm()
            with contextlib.suppress(VisparkError):
                stop(timeout=SECONDS)
            leaks.kill(leaks.processes_of(self.directory / "rt"))
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            self._control.close()

    def warm(self, client: Client) -> None:
        """Compile what is compiled once."""
        self.fold(client)
        self.fetch(client)
        self.exec(client)
        self.grid(client)

    # -- what is asked ------------------------------------------------------------------------------------------------

    def client(self, session: str = "app") -> Client:
        return connect(hello(session, device="host", role="driver"), timeout=SECONDS)

    def run(self, client: Client, sent: tuple[bytes, bytes], vrdds: tuple[int, ...], data: np.ndarray | None = None):
        descriptors = []
        if data is not None:
            with Payload.create(aligned(data.nbytes)) as payload:
                payload.put(0, data)
                descriptors.append(payload.release())
        try:
            request = Run(client.next_number(), client.epoch, SECONDS, *sent, vrdds, ())
            reply, received = client.request(request, descriptors)
        finally:
            close_all(descriptors)
        return reply, results(reply.data, received)

    def put(self, client: Client, number: int) -> None:
        self.run(client, PUT, (number,), BLOCK)

    def number(self) -> int:
        """Return a number that no value has had; what has it goes, at the latest in the look after a refusal."""
        number = next(self._numbers)
        self._passing.append(number)
        return number

    def load(self, client: Client) -> None:
        """Load a value that goes."""
        number = self.number()
        self.put(client, number)
        client.request(Release(client.next_number(), (number,)))

    def fetch(self, client: Client) -> None:
        """Fetch a value, and compare it."""
        reply, data = self.run(client, FETCH, (1,))
        block = data.field(SIGNATURE.fields[0], reply.outputs[0].offset)
        if not np.array_equal(block, BLOCK):
            raise AssertionError("what was fetched is wrong")

    def fold(self, client: Client) -> None:
        """Fold a value, with kernels that are loaded."""
        reply, data = self.run(client, FOLD, (1,))
        field = reply.folded.fields[0]
        total = data.field(Field("", field.dtype, field.shape), field.offset)
        if not np.allclose(total, BLOCK.sum(0, "f8")):
            raise AssertionError("what was folded is wrong")

    def exec(self, client: Client) -> None:
        """Run a kernel with barriers over many blocks, and an argument that changes."""
        bench = RemoteBench(client)
        bench.describe(1, [[{"": BLOCK}]])
        table = np.arange(32, dtype="f4") + next(self._numbers)
        plan = bench.plan(1, (ExecStep("exec twice"), FetchStep(-1, "")), [LAUNCH], EXEC)
        reply, data = bench.run(plan, (1,), [table])
        block = data.field(SIGNATURE.fields[0], reply.outputs[0].offset)
        if not np.array_equal(block, 2 * BLOCK.reshape(-1, 32)[:, ::-1].reshape(BLOCK.shape)
                              + np.tile(table, BLOCK.size // 32).reshape(BLOCK.shape)):
            raise AssertionError("what a kernel made is wrong")

    def grid(self, client: Client) -> None:
        """Load a grid, keep a step of it, run a loop, and release them."""
        grid = GridBench(RemoteBench(client))
        number, other = self.number(), self.number()
        grid.put(number, CELLS)
        grid.worker.run(grid.plan(*STEP, KeepStep(1, "u", "device")), (number, other))
        right = np.allclose(grid.fetch(other), spread(CELLS), rtol=1e-6) and \
            np.allclose(grid.fetch(number, LOOP), spread(CELLS, 5), rtol=1e-5)
        client.request(Release(client.next_number(), (number, other)))
        if not right:
            raise AssertionError("what a stencil made is wrong")

    def churn(self, client: Client) -> None:
        """Load values, copy them to the host, and release them."""
        number, other = self.number(), self.number()
        self.run(client, PUT_ON_HOST, (number,), BLOCK)
        self.put(client, number)
        self.run(client, TO_HOST, (number, other))
        client.request(Release(client.next_number(), (number, other)))

    def report(self, client: Client) -> None:
        client.request(Report(client.next_number()))

    def connecting(self, _: Client) -> None:
        """Open another connection."""
        with self.client() as client:
            self.report(client)

    def cold(self, _: Client) -> None:
        """Start a session's first process."""
        with self.client(f"cold-{next(self._numbers)}") as client:
            self.put(client, 1)
            self.fetch(client)

    # -- refusing -----------------------------------------------------------------------------------------------------

    def arm(self, role: int, call: str, countdown: int) -> None:
        number, error = CALLS[call]
        self._control[:20] = struct.pack("5i", role, 0, countdown, error, 0)
        self._control[4:8] = struct.pack("i", number)

    def disarm(self) -> bool:
        """Refuse nothing more; whether something was."""
        self._control[4:8] = bytes(4)
        return bool(struct.unpack("5i", self._control[:20])[4])

    def tried(self, role: int, call: str, countdown: int, name: str) -> bool:
        """Refuse a call while something is asked for; return whether there was one to refuse."""
        answers: list[str] = []
        try:
            client = self.client()
        except VisparkError as error:
            self.outcomes["broken"] += 1
            self.failures.append(f"before {call} {countdown} in {name}: {error}".splitlines()[0])
            return False
        with client:
            pid = client.pid

            def ask() -> None:
                try:
                    getattr(self, name)(client)
                    answers.append("right")
                except VisparkError as error:
                    untyped = type(error) is VisparkError or "defect" in str(error)
                    answers.append(f"untyped: {error}" if untyped else "typed")
                except AssertionError as error:
                    answers.append(f"wrong: {error}")

            thread = threading.Thread(target=ask, daemon=True)
            self.arm(role, call, countdown)
            thread.start()
            thread.join(SECONDS + 10)
            refused = self.disarm()
            if thread.is_alive():
                answers.append("no answer")
        if refused:
            self._look_after(f"{call} {countdown} of {'device process' if role == DEVICE else 'daemon'} in {name}",
                             answers[0], pid)
        return refused

    def _look_after(self, what: str, answer: str, pid: int) -> None:
        """See that the process stays, holds what it held, and does what is asked next."""
        outcome = answer.partition(":")[0]
        try:
            with self.client() as client:
                if client.pid != pid:
                    outcome, answer = "ended", f"the process ended, as was said: {answer}"
                    self.put(client, 1)
                self.fetch(client)
                self.fold(client)
                self.churn(client)
                self.exec(client)
                self.grid(client)
                client.request(Release(client.next_number(), tuple(self._passing)))
                self._passing.clear()
        except PartitionMissing as error:
            outcome, answer = "lost", str(error)
        except (VisparkError, AssertionError) as error:
            outcome, answer = "broken", f"{type(error).__name__}: {error}"
        self.outcomes[outcome] += 1
        if outcome not in ("right", "typed"):
            self.failures.append(f"{what}: {answer.splitlines()[0]}")

    def descriptors(self) -> Counter[str]:
        """Count the descriptors of the device process by what they lead to."""
        counts: Counter[str] = Counter()
        with self.client() as client:
            for descriptor in Path(f"/proc/{client.pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):      # It was closed meanwhile.
                    counts[descriptor.readlink().name.partition(":[")[0]] += 1
        return counts


ASKS = ("load", "fetch", "fold", "exec", "grid", "churn", "report", "connecting", "cold")


@dataclass(frozen=True)
class Kind:
    """A call that is refused, in whom, and what is asked for then."""

    role: int
    call: str
    name: str

    def __str__(self) -> str:
        return f"{self.call} of {'device process' if self.role == DEVICE else 'daemon'} in {self.name}"


def kinds(calls: Iterable[str] = tuple(CALLS), asks: Iterable[str] = ASKS) -> list[Kind]:
    """Return all kinds of refusals."""
    return [Kind(role, call, name) for role in (DEVICE, DAEMON) for call in calls
            for name in (asks if role == DEVICE else ("connecting", "cold"))]


def sweep(directory: Path, most: int, every: int, wanted: Iterable[Kind],
          report: Callable[[str], None] = str) -> Refusals:
    """Refuse the first, the (1 + ``every``)-th, ... call of each kind while each thing is asked for.

    Parameters
    ----------
    directory : Path
        An empty one.
    most : int
        The most calls that are refused of one kind in one thing asked for.
    every : int
        How many calls to go on by.
    wanted : iterable of Kind
        The kinds, one after the other.
    report : callable
        Is told what each kind came to.
    """
    refusals = Refusals(directory)
    with refusals.running():
        before: Counter[str] = Counter()
        for kind in wanted:
            before = before or refusals.descriptors()
            known, wrong, countdown = refusals.outcomes.copy(), len(refusals.failures), 1
            while countdown <= most * every and refusals.tried(kind.role, kind.call, countdown, kind.name):
                countdown += every
            report("\n".join([f"{kind}: {dict(refusals.outcomes - known)}", *refusals.failures[wrong:]]))
        if before and not eventually(lambda: refusals.descriptors().total() <= before.total() + 2):
            refusals.failures.append(f"descriptors stay: {dict(refusals.descriptors() - before)}")
    return refusals


def _queued(queue: Queue[Kind]) -> Iterator[Kind]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return


def _print(line: str) -> None:
    print(line, flush=True)


def _swept(queue: Queue[Kind], most: int, every: int) -> tuple[Counter[str], list[str]]:
    """Sweep the kinds of a queue, with a worker of this process's own."""
    with tempfile.TemporaryDirectory(prefix="v", ignore_cleanup_errors=True) as directory:
        refusals = sweep(Path(directory), most, every, _queued(queue), _print)
    return refusals.outcomes, refusals.failures


def main() -> None:
    """Print the outcomes of a sweep, those of each kind as soon as they are known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=20)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--calls", nargs="*", default=list(CALLS), choices=list(CALLS))
    parser.add_argument("--jobs", type=int, default=1, help="how many kinds side by side, each with workers of its own")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    spawn = get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(options.jobs, spawn) as pool:
        queue = manager.Queue()
        for kind in kinds(options.calls):
            queue.put(kind)
        try:
            sweeps = [pool.submit(_swept, queue, options.most, options.every) for _ in range(options.jobs)]
            for counts, wrong in [future.result() for future in sweeps]:
                outcomes += counts
                failures += wrong
        except WorkerUnavailable as error:
            raise SystemExit(str(error)) from error
    print("in all:")
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:6d} {outcome}")
    print("\n".join(failures))


if __name__ == "__main__":
    main()
