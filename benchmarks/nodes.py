"""Costs of exchanges by MPI between nodes, and the share of them that is hidden behind the computation; run by hand.

    python -m benchmarks.nodes --out benchmarks/results/2core-host-nodes.json

Each node is a daemon on this machine with a runtime directory of its own, and a process that does of heat's loop what a
device process does, on one thread, with an MPI rank beside it: the loop, the loop without its exchanges, and its
exchanges alone. Two nodes are measured once more as network namespaces that a cable of a limited rate joins; there a
message takes time in which no core has anything to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

import tests.conftest  # It sets the environment of daemons.
from benchmarks import machine, overlap
from benchmarks.heat import Cube
from benchmarks.measure import Series
from benchmarks.results import Group, document, table
from benchmarks.solvers import a_step
from tests.mpi.nodes import NodeWorker, nodes
from tests.mpi.test_namespaces import ADDRESSES, hosts

__all__ = ["main", "tests"]

#: Steps are done three at once, with an exchange for them together.
STEPS = 12


@contextlib.contextmanager
def cable(base: Path, rate: str) -> Iterator[list[NodeWorker]]:
    """Yield two nodes as hosts of their own, and limit the bytes that go through the cable between them in a second."""
    key = base / "key"
    key.write_text(secrets.token_hex(16))
    key.chmod(0o600)
    with hosts() as holders:
        within = [("nsenter", "-t", str(holder), "-n") for holder in holders]
        for host in within:
            end = subprocess.run([*host, "sh", "-c", "ls /sys/class/net | grep ^v; ip -o link | grep -o 'v[0-9]*[ab]'"],
                                 check=True, capture_output=True, text=True).stdout.split()[-1]
            # Large packets, as what they cost a core is not what is looked for.
            subprocess.run([*host, "ip", "link", "set", end, "mtu", "60000"], check=True)
            subprocess.run([*host, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", rate, "burst", "64kb",
                            "latency", "400ms"], check=True)
        started = [("--listen", f"{here}:7700", "--hosts", f"{there}:7700", "--key", str(key))
                   for here, there in (ADDRESSES, ADDRESSES[::-1])]
        with nodes(base, 2, started, within) as members:
            yield members


def measured(members: list[NodeWorker], cube: Cube, samples: int, rate: str) -> Group:
    """Measure the loop over some nodes."""
    session, key = f"nodes-{secrets.token_hex(4)}", secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(node.connect(session)).worker for node in members]
        running = []
        for rank, node in enumerate(members):
            arguments = {"key": key, "rank": rank, "workers": workers, "samples": samples,
                         "cube": {"shape": cube.shape, "splits": cube.splits, "steps": cube.steps}}
            command = [*node.within, sys.executable, "-m", "benchmarks.node_rank", json.dumps(arguments)]
            running.append(stack.enter_context(subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=os.environ | {"VISPARK_RUNTIME_DIR": str(node.path), "OMP_NUM_THREADS": "1"})))
        reports = [json.loads(each.stdout.readline()) for each in running]
    count, limited = len(members), f" over a cable of {rate}" if rate else ""
    group = Group(f"exchanges of heat by MPI, {' x '.join(map(str, cube.shape))}, {count} nodes{limited}", {
        "shape": list(cube.shape), "splits": list(cube.splits), "steps": cube.steps, "nodes": count, "rate": rate,
        "bytes": cube.nbytes, "samples": samples, "device": "host", "threads": 1,
        "bytes_to_mpi_a_step": [each["sent"][overlap.LOOP] / cube.steps for each in reports]})
    series = [a_step(Series(name, tuple(taken), 1, 0 if name == overlap.ALONE else cube.nbytes * cube.steps,
                            (overlap.WITHOUT,) if name == overlap.LOOP else ()), cube.steps)
              for name, taken in reports[0]["samples"].items()]
    loop, without, alone = (each.median for each in series)
    parts = {part: max(statistics.median(each[part][overlap.LOOP]) for each in reports) / cube.steps
             for part in ("travelled", "waited")}
    series[0].notes.update(
        share_of_exchange_not_hidden=max(0.0, (loop - without) / alone), seconds_of_travel_a_step=parts["travelled"],
        seconds_waited_a_step=parts["waited"], share_of_travel_waited_for=parts["waited"] / parts["travelled"])
    group.series += series
    return group


def groups(cube: Cube, samples: int, rates: tuple[str, ...], done: Callable[[str], None]) -> Iterator[Group]:
    """Measure two and four nodes, and two over cables."""
    for count, rate in [(2, ""), (4, ""), *((2, each) for each in rates)]:
        done(f"{count} nodes {rate}")
        with tempfile.TemporaryDirectory(prefix="vn-") as directory:
            base = Path(directory)
            with cable(base, rate) if rate else nodes(base, count) as members:
                yield measured(members, cube, samples, rate)


@click.command(help=__doc__)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where the samples go, as JSON.")
@click.option("--cells", default=(256, 256, 256), nargs=3, type=int, show_default=True)
@click.option("--samples", default=15, show_default=True)
@click.option("--rate", multiple=True, default=("1gbit",), show_default=True, help="Of a cable, as tc says it.")
@click.option("--note", help="What else is to be said of the run; it is kept with the samples.")
def main(out: Path | None, cells: tuple[int, int, int], samples: int, rate: tuple[str, ...], note: str | None) -> None:
    start, results = time.monotonic(), []
    about = {"command": ["python", "-m", "benchmarks.nodes", *(each if str(out) != each else out.name
                                                              for each in sys.argv[1:])],
             "scale": "x".join(map(str, cells)), "device": "host",
             "began": datetime.now(UTC).isoformat(timespec="seconds"), **machine.commit(),
             "machine": machine.description()} | ({"note": note} if note else {})
    for group in groups(Cube(cells, (4, 2, 2), STEPS), samples, rate, lambda name: print(name, flush=True)):
        results.append(group)
        if out:
            about |= {"seconds": time.monotonic() - start, "load_average_after": list(os.getloadavg())}
            out.write_text(json.dumps(document(results, **about), indent=1) + "\n")
    Console(width=160).print(table(results, "exchanges by MPI"))


if __name__ == "__main__":
    main()
