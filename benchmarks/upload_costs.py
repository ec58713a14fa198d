"""Costs of taking pieces for a worker: ``python -m benchmarks.upload_costs DEVICE [PROCESSES [MEGABYTES]]``.

Processes send a partition each at the same time, again and again, once as tasks do and once with nothing put into the
pieces, so that there is hardly anything but what the worker does. Of a device ``null`` that is all: it copies nothing.
Beside the rate, a piece's share of the worker's processor time, of its threads' waits (they slept, as there was nothing
to do or another thread had the interpreter's lock), and of those times that the machine took a processor from them.
"""

from __future__ import annotations

import itertools
import os
import secrets
import statistics
import uuid
from contextlib import ExitStack, closing
from pathlib import Path

import click

from benchmarks.transport import Processes, TimedAction, send_block
from gpu_worker.client.connection import open_lease
from vispark.options import Options
from vispark.runtime.executor import chunked_upload
from vispark.runtime.executor.client import local_client
from vispark.runtime.identity import Credentials

#: Small ones, so that a partition has as many as a large one of those that tasks send.
_PIECE_BYTES = 1 << 20

_ROUNDS = 15


def burnt(pid: int) -> tuple[float, int, int]:
    """Return a process' seconds of processor time so far, and the number of times that its threads slept and were made
    to wait.
    """
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    slept = stopped = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        switches = dict(line.split(":\t") for line in (thread / "status").read_text().splitlines() if "ctxt" in line)
        slept += int(switches["voluntary_ctxt_switches"])
        stopped += int(switches["nonvoluntary_ctxt_switches"])
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"), slept, stopped


def _send(credentials: Credentials, number: int, how: str) -> TimedAction:
    chunked_upload.PIECE_BYTES = _PIECE_BYTES
    return send_block(credentials, number, True, how)


@click.command(help=__doc__)
@click.argument("device")
@click.argument("count", metavar="[PROCESSES]", type=int, default=16)
@click.argument("megabytes", type=int, default=32)
def main(device: str, count: int, megabytes: int) -> None:
    nbytes = megabytes << 20
    credentials = Credentials(uuid.uuid4().hex, secrets.token_bytes(32), "benchmarks",
                              Options.read([("spark.vispark.device", device)]))
    parts, numbers = count * nbytes // _PIECE_BYTES, itertools.count(1)
    with ExitStack() as stack:
        stack.enter_context(open_lease(credentials.hello("lease", 0)))
        pid = local_client(credentials).pid
        processes = stack.enter_context(closing(Processes(count, nbytes)))
        for name, how in (("nothing put in", "unwritten"), ("packed", "")):
            processes.seconds("warm", _send, credentials, next(numbers), how)
            before = burnt(pid)
            samples = [processes.seconds(name, _send, credentials, next(numbers), how) for _ in range(_ROUNDS)]
            cpu, slept, stopped = ((now - then) / parts / _ROUNDS
                                   for now, then in zip(burnt(pid), before, strict=True))
            seconds = statistics.median(samples)
            print(f"{name}: {count * nbytes / seconds / 1e9:.2f} GB/s, a piece {1e6 * seconds / parts:.0f} us (least "
                  f"{1e6 * min(samples) / parts:.0f}); of the worker's processor {1e6 * cpu:.0f} us, {slept:.2f} "
                  f"waits, {stopped:.2f} times stopped", flush=True)


if __name__ == "__main__":
    main()
