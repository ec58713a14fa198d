"""Launches and copies through each layer below the ``cuda`` device: ``python -m benchmarks.layers --out FILE``.

Each layer, PyCUDA and cuda-bindings (``VISPARK_CUDA_DRIVER``), has a process of its own. The two take turns, and who
begins changes with each pair, so that a machine whose speed changes does the same to both. A sample enqueues an empty
kernel of three arguments, or a copy of 4 KiB, a thousand times between two waits for the stream; "in a pass" is within
a context in which the device is current already, as a plan's steps are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from statistics import quantiles

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


def measure() -> None:
    """Print the seconds a call of each case, in this process and with whichever layer it chose, for each line of input.
    """
    device, *others = open_devices("cuda")
    stream = device.stream()
    kernel = device.compile(Source(SOURCE, "nothing.cu"), "nothing")
    pair = [device.allocate(4096, stream=stream) for _ in range(2)]
    arguments = [*pair, np.int32(1024)]

    def launch() -> None:
        device.launch(kernel, (1,), (128,), arguments, stream=stream)

    def copy() -> None:
        device.copy_across(*pair, stream=stream)

    def timed(call: Callable[[], None], is_in_pass: bool) -> float:
        device.synchronize(stream=stream)
        with device.active() if is_in_pass else nullcontext():
            start = time.perf_counter()
            for _ in range(REPEATS):
                call()
            seconds = time.perf_counter() - start
        device.synchronize(stream=stream)
        return seconds / REPEATS

    for _ in sys.stdin:
        print(json.dumps({"launch": timed(launch, False), "launch in a pass": timed(launch, True),
                          "copy": timed(copy, False), "copy in a pass": timed(copy, True)}), flush=True)
    for buffer in pair:
        buffer.close()
    for opened in (device, *others):
        opened.close()


def pairs(samples: int) -> dict[str, dict[str, list[float]]]:
    """Return the samples of each layer and case, of which each pair was taken one after the other."""
    kept: dict[str, dict[str, list[float]]] = {layer: {} for layer in LAYERS}
    with ExitStack() as stack:
        children = {layer: stack.enter_context(subprocess.Popen(
            [sys.executable, "-m", "benchmarks.layers", "--child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, VARIABLE: layer})) for layer in LAYERS}
        for number in range(-1, samples):
            for layer in LAYERS[::1 if number % 2 else -1]:
                child = children[layer]
                assert child.stdin and child.stdout
                child.stdin.write("\n")
                child.stdin.flush()
                for name, seconds in json.loads(child.stdout.readline()).items():
                    if number >= 0:
                        kept[layer].setdefault(name, []).append(seconds)
    return kept


@click.command(help=__doc__)
@click.option("--samples", default=100, type=click.IntRange(2), help="Pairs of each case.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the samples go, as JSON.")
@click.option("--child", is_flag=True, hidden=True)
def main(samples: int, out: Path | None, child: bool) -> None:
    if child:
        measure()
        return
    kept = pairs(samples)
    groups = compared(kept, samples=samples)
    Console().print(table(groups, "calls of the driver"))
    for name, times in kept[LAYERS[1]].items():
        low, middle, high = quantiles(np.divide(times, kept[LAYERS[0]][name]), n=4)
        print(f"{name}: {LAYERS[1]} takes {middle:.3f} of {LAYERS[0]} (median of {samples} pairs; quartiles {low:.3f} "
              f"to {high:.3f})")
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
