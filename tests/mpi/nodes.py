"""Several GPU workers on this machine, each with a runtime directory of its own, as if they were nodes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpu_worker.client.connection import Client, connect
from gpu_worker.device.memory.grid.boxes import whole
from gpu_worker.exchange.mpi.nodes import KEY
from gpu_worker.protocol import exchange_kinds
from gpu_worker.protocol.errors import NotFinite, VisparkError, WorkerError
from gpu_worker.protocol.grids import IterateStep, Phase, World
from gpu_worker.protocol.messages import (
    Abandon,
    ArgumentValue,
    CopyTo,
    FetchStep,
    Field,
    Input,
    KeepStep,
    LoadStep,
    Module,
    OpenWorld,
    Plan,
    PutStep,
    Ran,
    Release,
    Report,
    Reported,
    Restore,
    Run,
    Save,
    Saved,
    Signature,
    Step,
    ToDeviceStep,
    Variant,
)
from gpu_worker.protocol.payload import Data, Payload, aligned, results
from gpu_worker.protocol.plans import sealed
from gpu_worker.system.paths import DISCOVERY_SCRIPT
from tests import leaks
from tests.system.worker_tools import end_workers, hello, stop_worker
from tests.unit.grids import CutGrid
from tests.unit.test_patches_steps import SOURCE, GridShape, halo, launch

SECONDS = 60.0

#: Of the sessions.
DEVICE = os.environ.get("VISPARK_TEST_DEVICE", "host")
#: Of which the nodes take turns to have one, so that cells go from one GPU to another where there are several.
GPUS = json.loads(subprocess.run(["sh", DISCOVERY_SCRIPT], capture_output=True, text=True, check=True).stdout
                  )["addresses"] if DEVICE == "cuda" else []


@dataclass
class NodeWorker:
    """A worker; its daemon is started through the command ``within``, and its sessions have ``gpu``, or all devices."""

    path: Path
    within: tuple[str, ...] = ()
    gpu: str = ""

    def start(self, *options: str) -> None:
        """Start its daemon."""
        command = [*self.within, sys.executable, "-m", "gpu_worker", "start", "--log-level", "debug", *options]
        started = subprocess.run(command, env=os.environ | {"VISPARK_RUNTIME_DIR": str(self.path)}, text=True,
                                 capture_output=True, timeout=60)
        assert started.returncode == 0, started.stderr

    def connect(self, session: str, device: str = DEVICE) -> Client:
        greeting = hello(session, device=device)
        if self.gpu:
            greeting = replace(greeting, gpus=(self.gpu,), options=replace(greeting.options, scheduled=True))
        return connect(greeting, runtime_dir=str(self.path), timeout=SECONDS)

    def logs(self) -> str:
        return "\n".join(f"==> {path}\n{path.read_text()}" for path in sorted(self.path.glob("*.log")))


@contextlib.contextmanager
def nodes(base: Path, count: int, hosts: Sequence[Sequence[str]] | None = None,
          within: Sequence[tuple[str, ...]] | None = None) -> Iterator[list[NodeWorker]]:
    """Start workers whose daemons know each other, unless ``hosts`` says what each is started with, and ``within``
    where.
    """
    members = [NodeWorker(base / str(number), within[number] if within else (),
                          GPUS[number % len(GPUS)] if GPUS else "")
               for number in range(count)]
    try:
        for number, node in enumerate(members):
            others = ",".join(str(other.path) for other in members if other is not node)
            node.start(*(("--hosts", others) if hosts is None else hosts[number]))
        yield members
    finally:
        # All are stopped first: the command of one names the directories of the others.
        for node in members:
            if node.path.exists():
                stop_worker(node.path)
        left = [process for node in members if node.path.exists() for process in end_workers(node.path)]
        for node in members:
            if node.path.exists():
                print(node.logs())
        assert not left, f"left behind: {[str(process) for process in left]}"
        for node in members:
            files = {path.name for path in node.path.glob("*")} - {"daemon.log", "process.log"}
            assert not files, f"left behind: {files}"


def opened(client: Client, key: bytes, exchange: str) -> bytes:
    """Open a process's end of a world, and return its address."""
    return client.request(OpenWorld(client.next_number(), key, exchange))[0].address


class NodesApp:
    """A session on some nodes, and a grid of which each has the blocks that it owns.

    Parameters
    ----------
    session : str
    members : sequence of Node
    case : Case
        ``owners`` are the nodes of the blocks; each node has them in one partition.
    weight : float
        Of the stencil.
    exchange : str
        By which its nodes pass cells to each other.
    """

    def __init__(self, session: str, members: Sequence[NodeWorker], case: CutGrid, weight: float = 0.01,
                 exchange: str = "mpi"):
        self.exchange = exchange
        self._addresses: dict[bytes, tuple[bytes, ...]] = {}
        self.session, self.nodes, self.case, self.weight = session, members, case, weight
        self.grid = GridShape(case.lattice.shape, case.lattice.splits, case.widths)
        self.boxes = [case.lattice.block(at) for at in whole(case.lattice.splits)]
        self.numbers = [[number for number, owner in enumerate(case.owners) if owner == rank]
                        for rank in range(len(members))]
        self.clients = [node.connect(session) for node in members]
        self.key = secrets.token_bytes(16)
        self._pool = ThreadPoolExecutor(len(members))

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._pool.shutdown()

    def __enter__(self) -> NodesApp:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def put(self, vrdd: int, full: np.ndarray, ranks: Sequence[int] | None = None) -> None:
        """Hold the blocks under a number."""
        for rank in ranks if ranks is not None else range(len(self.nodes)):
            blocks = [np.ascontiguousarray(full[tuple(map(slice, self.boxes[number].low, self.boxes[number].high))])
                      for number in self.numbers[rank]]
            with Payload.create(sum(aligned(block.nbytes) for block in blocks)) as payload:
                offset = 0
                for block in blocks:
                    payload.put(offset, block)
                    offset += aligned(block.nbytes)
                self._ask(rank, self._plan(rank, PutStep(), ToDeviceStep(), KeepStep(0, "u", "device")), (vrdd,), None,
                          [payload.release()])

    def run(self, vrdds: Sequence[int], *steps: Step, key: bytes | None = None, seconds: float = 30.0,
            save: Save | None = None, turn: int = 0,
            alike: type[VisparkError] = NotFinite) -> list[tuple[Ran, Data]]:
        """Run steps on all nodes at once, in a world; where one fails, by an error that is not ``alike`` for all, the
        others are told.
        """
        workers = tuple(client.worker for client in self.clients)
        key = key or self.key
        addresses = self._opened(key)

        def one(rank: int) -> tuple[Ran, Data]:
            world = World(key, rank, workers, turn, addresses)
            try:
                return self._ask(rank, self._plan(rank, LoadStep(0), *steps), vrdds, world, seconds=seconds,
                                 save=self._copied(save, rank))
            except VisparkError as error:
                if not isinstance(error, alike):
                    self._abandon(key, rank)
                raise

        futures = [self._pool.submit(one, rank) for rank in range(len(self.nodes))]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise ExceptionGroup("a node failed", [each for each in errors if each is not None]) from error
        return [future.result() for future in futures]

    def _opened(self, key: bytes) -> tuple[bytes, ...]:
        """Open the nodes' ends of a world, once, where the exchange needs it."""
        if exchange_kinds.kind_of(self.exchange).needs_addresses and key not in self._addresses:
            self._addresses[key] = tuple(opened(client, key, self.exchange) for client in self.clients)
        return self._addresses.get(key, ())

    def _copied(self, save: Save | None, rank: int) -> Save | None:
        """Return a snapshot with a copy on the next node, where there is one."""
        if save is None or len(self.nodes) == 1:
            return save
        return replace(save, copy=CopyTo(str(rank), str(self.nodes[(rank + 1) % len(self.nodes)].path), None))

    def _abandon(self, key: bytes, lost: int) -> None:
        for rank, node in enumerate(self.nodes):
            if rank != lost:
                with contextlib.suppress(WorkerError), node.connect(self.session) as client:
                    client.request(Abandon(client.next_number(), key))

    def alone(self, rank: int, vrdds: Sequence[int], *steps: Step) -> Ran:
        """Run steps on one node that has all blocks."""
        return self._ask(rank, self._plan(range(len(self.nodes)), LoadStep(0), *steps), vrdds, None)[0]

    def save(self, vrdd: int, number: int, needed: tuple[int, ...] = (), copy: CopyTo | None = None,
             rank: int = 0) -> Saved:
        """Take a snapshot of a node's part, and wait until it is complete."""
        save: Save | None = Save(vrdd, number, needed, copy)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            ran, _ = self._ask(rank, self._plan(rank, LoadStep(0)), (vrdd,), None, save=save)
            for saved in ran.saved:
                if saved.snapshot == number:
                    assert not saved.failed
                    return saved
            save = None
            time.sleep(0.005)
        raise AssertionError(f"snapshot {number} was not complete in {SECONDS} s")

    def loop(self, steps: int, **changes) -> IterateStep:
        return replace(IterateStep("loop", (Phase("around", (halo(self.case, False),), 0),), steps, 0, -1.0, 1, 0),
                       **changes)

    def fetch(self, vrdd: int, at: int | None = None) -> np.ndarray:
        """Return the whole field; all of it from one node, where that is named."""
        full = np.full(self.case.lattice.shape, np.nan)
        for rank, numbers in enumerate(self.numbers):
            reply, data = self._ask(rank if at is None else at, self._plan(rank, LoadStep(0), FetchStep(-1, "blocks")),
                                    (vrdd,),
                                    None)
            offset = reply.outputs[0].offset
            for number in numbers:
                box = self.boxes[number]
                cells = data.field(Field("u", "<f8", box.shape), offset)
                full[tuple(map(slice, box.low, box.high))] = cells
                offset += aligned(cells.nbytes)
        return full

    def sent(self) -> list[int]:
        """Return the bytes that each node has sent to others."""
        return [report.sent for report in self.reports()]

    def reports(self) -> list[Reported]:
        """Return the report of each node on the session."""
        return [client.request(Report(client.next_number()))[0] for client in self.clients]

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a node's device process."""
        os.kill(self.clients[rank].pid, number)

    def ranks(self) -> list[int]:
        """Return the MPI processes of the application's present world, in no order."""
        world = f"{KEY}={self.key.hex()}"
        return [process.pid for process in leaks.processes(lambda each, environment: world in environment)
                if re.search("python[^ ]* -P -m gpu_worker.exchange.mpi.rank", process.command)
                and not re.search("mpirun|prterun", process.command)]

    def again(self, rank: int) -> None:
        """Connect anew, to a node whose device process has ended."""
        self.clients[rank].close()
        before = self.clients[rank].epoch
        deadline = time.monotonic() + SECONDS
        while self.clients[rank].epoch == before and time.monotonic() < deadline:
            self.clients[rank].close()
            self.clients[rank] = self.nodes[rank].connect(self.session)

    def _plan(self, ranks: int | Sequence[int], *steps: Step) -> Plan:
        """Return a plan for the partitions of some nodes."""
        keeps, variants, inputs = sum(isinstance(step, KeepStep) for step in steps), [], []
        for rank in [ranks] if isinstance(ranks, int) else ranks:
            numbers, first = self.numbers[rank], len(variants)
            variants += [Variant(Signature((Field("u", "<f8", self.boxes[number].shape),)), (), (b"",) * keeps,
                                 (-1,) * keeps) for number in numbers]
            inputs.append(Input(rank, len(numbers), 0, 0, b"", tuple(range(first, len(variants))), tuple(numbers)))
        return Plan(steps, (Module(SOURCE.text, "around.cu", (), (), ()),), tuple(variants), tuple(inputs), (),
                    self.grid, (launch(self.case, self.weight),))

    def _ask(self, rank: int, plan: Plan, vrdds: Sequence[int], world: World | None, descriptors: Sequence[int] = (),
             seconds: float = 30.0, save: Save | None = None) -> tuple[Ran, Data]:
        client = self.clients[rank]
        key, encoded = sealed(plan)
        widths = np.array(self.case.widths, "i4")
        values = (ArgumentValue("<i4", (3,), widths.tobytes(), 0),)
        request = Run(client.next_number(), client.epoch, seconds, key, encoded, tuple(vrdds), values, world,
                      save=save)
        reply, received = client.request(request, list(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        return reply, results(reply.data, received)


class Survivor:
    """A driver of an application's loop that survives the loss of its workers' processes.

    It runs the loop in parts, has the newest part's result copied beside the next ones, and goes back to the newest
    complete snapshot when something is lost.

    Parameters
    ----------
    app : Application
    full : ndarray
        What the loop starts from.
    """

    def __init__(self, app: NodesApp, full: np.ndarray):
        self.app, self.full = app, full
        self._numbers = itertools.count(1)
        self.recoveries = 0
        #: The newest complete snapshot: its number and the steps before it.
        self.complete: tuple[int, int] | None = None
        self._taking: tuple[int, int] | None = None

    def run(self, steps: int, part: int) -> np.ndarray:
        """Return the field after so many steps."""
        vrdd, done = self._start()
        while done < steps:
            try:
                after = next(self._numbers)
                count = min(part, steps - done)
                answers = self.app.run((vrdd, after), self.app.loop(count, done=done), KeepStep(1, "u", "device"),
                                       save=self._save(after, done + count))
                self._release(vrdd)
                vrdd, done = after, done + count
                self._learn([ran for ran, _ in answers])
                result = self.app.fetch(vrdd) if done == steps else None
            except (ExceptionGroup, WorkerError) as error:
                vrdd, done = self._recover(error)
        return result

    def _start(self) -> tuple[int, int]:
        vrdd = next(self._numbers)
        self.app.put(vrdd, self.full)
        return vrdd, 0

    def _release(self, vrdd: int) -> None:
        for client in self.app.clients:
            client.request(Release(client.next_number(), (vrdd,)))

    def _save(self, vrdd: int, done: int) -> Save | None:
        """Ask for the next snapshot, if none is under way."""
        if self._taking is not None:
            return None
        self._taking = next(self._numbers), done
        return Save(vrdd, self._taking[0], (self.complete[0],) if self.complete else ())

    def _learn(self, answers: Sequence[Ran]) -> None:
        """See whether the snapshot that is under way is complete."""
        if self._taking and all(self._taking[0] in [each.snapshot for each in ran.saved if not each.failed]
                                for ran in answers):
            self.complete, self._taking = self._taking, None

    def _recover(self, error: BaseException) -> tuple[int, int]:
        """Go back to the newest complete snapshot, or to the start."""
        self.recoveries += 1
        for attempt in range(20):
            try:
                self._taking = None
                self.app.key = secrets.token_bytes(16)
                for rank in range(len(self.app.nodes)):
                    self.app.clients[rank].close()
                    self.app.clients[rank] = self.app.nodes[rank].connect(self.app.session)
                if self.complete is None:
                    return self._start()
                vrdd = next(self._numbers)
                for client in self.app.clients:
                    client.request(Restore(client.next_number(), self.complete[0], vrdd, "u"))
                return vrdd, self.complete[1]
            except (WorkerError, ExceptionGroup):
                time.sleep(0.05 * attempt)
        raise error
