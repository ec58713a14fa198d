"""Seconds that it takes two nodes to swap a face, by each exchange; run by hand.

    python -m benchmarks.exchanges --out benchmarks/results/2core-host-exchanges.json

Each node is a process on this machine that does what a device process does with a world: both give a face out of a
device's memory, and have the other's there at the end. By MPI, over TCP alone as between hosts, each has a rank beside
it; by UCX over TCP, and over shared memory. With ``--device cuda`` UCX moves the device's memory itself, where it was
built so, over TCP through copies, and between the processes by CUDA IPC. What each node has done is told on stderr;
one that is not done in time prints where it waits, and the run ends with an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

import tests.conftest  # It sets the environment of daemons.
from benchmarks import machine
from benchmarks.measure import Series
from benchmarks.results import Group, document, table
from gpu_worker.protocol import exchange_kinds
from tests.mpi.nodes import nodes

__all__ = ["main", "tests"]

#: Of a face.
SIZES = {64 << 10: "64 KiB", 4 << 20: "4 MiB"}

#: By device: name, exchange, and what the environment says of its ways.
WAYS = {"host": (("mpi, tcp", "mpi", {}),
                 ("ucx, tcp", "ucx", {"UCX_TLS": "tcp,self"}),
                 ("ucx, shared memory", "ucx", {"UCX_TLS": "sm,self"})),
        "cuda": (("mpi, tcp", "mpi", {}),
                 ("ucx, tcp, cuda_copy", "ucx", {"UCX_TLS": "tcp,self,cuda_copy"}),
                 ("ucx, tcp, cuda_copy, cuda_ipc", "ucx", {"UCX_TLS": "tcp,self,cuda_copy,cuda_ipc"}),
                 ("ucx, shared memory, cuda_copy, cuda_ipc", "ucx", {"UCX_TLS": "sm,self,cuda_copy,cuda_ipc"}))}


def swaps(exchange: str, variables: dict[str, str], samples: int, device: str, gpus: int) -> list[list[float]]:
    """Return the seconds of each swap, by the sizes of faces."""
    key = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vx-")))
        for name, value in variables.items():
            stack.enter_context(_set(name, value))
        members = stack.enter_context(nodes(base, 2))
        # Only for their names: the nodes' own processes open the devices, each one GPU and no other.
        workers = [stack.enter_context(node.connect("exchanges", "null")).worker for node in members]
        print(f"  daemons {', '.join(workers)}", file=sys.stderr, flush=True)
        running = []
        for rank, node in enumerate(members):
            arguments = {"exchange": exchange, "key": key, "rank": rank, "workers": workers, "sizes": list(SIZES),
                         "samples": samples, "device": device, "addresses": [str(rank % gpus)] if gpus else []}
            running.append(stack.enter_context(subprocess.Popen(
                [sys.executable, "-m", "benchmarks.exchange_rank", json.dumps(arguments)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, env=os.environ | {"VISPARK_RUNTIME_DIR": str(node.path)})))
        if exchange_kinds.kind_of(exchange).needs_addresses:
            addresses = " ".join([_line(each, exchange, variables) for each in running])
            for process in running:
                process.stdin.write(f"{addresses}\n")
                process.stdin.flush()
        first, _ = [json.loads(_line(each, exchange, variables)) for each in running]
        return first


def _line(process: subprocess.Popen, exchange: str, variables: dict[str, str]) -> str:
    """Return the line that a node says next; it ends by itself, with the place where it waits, when it takes too long.
    """
    line = process.stdout.readline().strip()
    if not line:
        raise click.ClickException(f"a node of {exchange} with {variables} has ended before it was done, with status "
                                   f"{process.wait()}")
    return line


@contextlib.contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


@click.command(help=__doc__)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where the samples go, as JSON.")
@click.option("--samples", default=300, show_default=True)
@click.option("--device", default="host", show_default=True, type=click.Choice(list(WAYS)))
@click.option("--gpus", default=1, show_default=True, type=click.IntRange(1, 2), help="Of --device cuda: how many GPUs "
              "the two nodes have, one for both or one each.")
@click.option("--note", help="What else is to be said of the run; it is kept with the samples.")
def main(out: Path | None, samples: int, device: str, gpus: int, note: str | None) -> None:
    start = time.monotonic()
    groups = [Group(f"two nodes swap faces of {name}", {"bytes": nbytes, "samples": samples, "device": device,
                                                            "gpus": gpus if device == "cuda" else 0})
              for nbytes, name in SIZES.items()]
    about = {"command": ["python", "-m", "benchmarks.exchanges", *sys.argv[1:]], "scale": "", "device": device,
             "began": datetime.now(UTC).isoformat(timespec="seconds"), **machine.commit(),
             "machine": machine.description()} | ({"note": note} if note else {})
    for name, exchange, variables in WAYS[device]:
        print(name, flush=True)
        swapped = swaps(exchange, variables, samples, device, gpus if device == "cuda" else 0)
        for group, taken in zip(groups, swapped, strict=True):
            group.series.append(Series(name, tuple(taken), 1, group.parameters["bytes"]))
    about |= {"seconds": time.monotonic() - start, "load_average_after": list(os.getloadavg())}
    if out:
        out.write_text(json.dumps(document(groups, **about), indent=1) + "\n")
    Console(width=160).print(table(groups, "exchanges between nodes"))


if __name__ == "__main__":
    main()
