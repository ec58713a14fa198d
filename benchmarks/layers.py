"""Launches and copies through each layer below the ``cuda`` device: ``python -m benchmarks.layers --out FILE``.

Each layer, PyCUDA and cuda-bindings (``VISPARK_CUDA_DRIVER``), runs in processes of its own, in turn. A process
enqueues an empty kernel of three arguments, and a copy of 4 KiB, a thousand times between two waits for the stream.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from rich.console import Console

from benchmarks import machine
from benchmarks.measure import Series
from benchmarks.results import Group, document, table
from gpu_worker.device import open_devices
from gpu_worker.device.base import Source
from gpu_worker.device.cuda.layer import VARIABLE

LAYERS = "pycuda", "bindings"
REPEATS = 1000
SOURCE = 'extern "C" __global__ void nothing(const float *a, float *b, int n) {}'


def measured(samples: int) -> dict[str, list[float]]:
    """Return seconds a call in this process, with whichever layer it chose."""
    device, *others = open_devices("cuda")
    stream = device.stream()
    kernel = device.compile(Source(SOURCE, "nothing.cu"), "nothing")
    pair = [device.allocate(4096, stream=stream) for _ in range(2)]
    arguments = [*pair, np.int32(1024)]

    def launch() -> None:
        device.launch(kernel, (1,), (128,), arguments, stream=stream)

    def copy() -> None:
        device.copy_across(*pair, stream=stream)

    def timed(call: Callable[[], None]) -> float:
        device.synchronize(stream=stream)
        start = time.perf_counter()
        for _ in range(REPEATS):
            call()
        seconds = time.perf_counter() - start
        device.synchronize(stream=stream)
        return seconds / REPEATS

    cases = {"launch": launch, "copy": copy}
    for call in cases.values():
        timed(call)
    found = {name: [timed(call) for _ in range(samples)] for name, call in cases.items()}
    for buffer in pair:
        buffer.close()
    for each in (device, *others):
        each.close()
    return found


@click.command(help=__doc__)
@click.option("--samples", default=15, type=click.IntRange(1), help="Of each case in each process.")
@click.option("--rounds", default=3, type=click.IntRange(1), help="Processes of each layer.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the samples go, as JSON.")
@click.option("--child", is_flag=True, hidden=True)
def main(samples: int, rounds: int, out: Path | None, child: bool) -> None:
    if child:
        print(json.dumps(measured(samples)))
        return
    kept: dict[str, dict[str, list[float]]] = {layer: {} for layer in LAYERS}
    for _ in range(rounds):
        for layer in LAYERS:
            given = [sys.executable, "-m", "benchmarks.layers", "--child", "--samples", str(samples)]
            answer = subprocess.run(given, check=True, stdout=subprocess.PIPE, env={**os.environ, VARIABLE: layer})
            for name, times in json.loads(answer.stdout).items():
                kept[layer].setdefault(name, []).extend(times)
    groups = compared(kept, samples=samples, rounds=rounds)
    Console().print(table(groups, "calls of the driver"))
    if out:
        about = {"command": ["python", "-m", "benchmarks.layers"], "scale": "full", "device": "cuda",
                 "machine": machine.description(), **machine.commit()}
        out.write_text(json.dumps(document(groups, **about), indent=1) + "\n")


def compared(kept: dict[str, dict[str, list[float]]], **parameters: int) -> list[Group]:
    """Return a group for each case, in which the other layer is held against the first."""
    first, second = LAYERS
    return [Group(name, parameters, [Series(first, tuple(kept[first][name]), REPEATS),
                                     Series(second, tuple(kept[second][name]), REPEATS, against=(first,))])
            for name in kept[first]]


if __name__ == "__main__":
    main()
