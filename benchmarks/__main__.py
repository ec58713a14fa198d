"""Run the benchmarks, print one table and write the samples; README.md says what is measured and how."""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import (
    flow,
    generated,
    generated_rows,
    heat,
    kmeans,
    latency,
    machine,
    overlap,
    packing,
    plots,
    publications,
    regression,
    tables,
    tax,
    text,
    transport,
    udfs,
    whole,
)
from benchmarks.cloud import Cloud
from benchmarks.flow import Plane
from benchmarks.generated import Alone
from benchmarks.heat import Cube
from benchmarks.points import Fused, Points
from benchmarks.regression import Settings
from benchmarks.results import Group, comparison, document, read, table
from benchmarks.session import context, device_of, environment
from benchmarks.whole import Programs
from gpu_worker.device import open_devices


@dataclass(frozen=True)
class Scale:
    """Amount that is measured.

    Attributes
    ----------
    rows : tuple of int
        Of logistic regression, a run for each.
    clouds : tuple of (int, int, tuple of int)
        Rows and features of K-means, and the numbers of centres that are looked for in each.
    cubes : tuple of Cube
        Of the heat equation, a run for each.
    planes : tuple of Plane
        Of the Navier-Stokes equations, a run for each.
    partitions : int
        Of them; 0 for as many as there are cores.
    block : int
        Bytes that a task sends.
    samples : int
        Of each case.
    jobs : int
        Samples of each Spark job, where latency is measured.
    text : int
        Bytes of the text that is read.
    programs : Programs
        The whole programs.
    alone : Alone
        What kernels by themselves run over.
    ways : str
        Those that are measured, see ``WAYS``.
    """

    rows: tuple[int, ...]
    clouds: tuple[tuple[int, int, tuple[int, ...]], ...]
    cubes: tuple[Cube, ...]
    planes: tuple[Plane, ...]
    partitions: int
    block: int
    samples: int
    jobs: int
    text: int
    programs: Programs
    alone: Alone
    ways: str = "all"


SCALES = {
    "tiny": Scale((20_000,), ((2_000, 64, (4,)),), (Cube((32, 32, 32), (2, 2, 1), 4),),
                  (Plane((64, 64), (2, 2), 2),), 2, 1 << 20, 7, 20, 1 << 20,
                  Programs(1 << 18, (1 << 18, 64, 4), Cube((32, 32, 32), (2, 2, 1), 2), Plane((64, 64), (2, 2), 1),
                           (1, 3)), Alone((9, 40, 150), (60, 300), 70_000, 1_500_000)),
    "small": Scale((200_000,), ((20_000, 64, (10,)), (20_000, 784, (40,))),
                   (Cube((128, 128, 128), (2, 2, 2), 20),), (Plane((1024, 512), (4, 2), 5),), 4, 64 << 20, 7, 20,
                   32 << 20, Programs(8 << 20, (8 << 20, 64, 10), Cube((128, 128, 128), (2, 2, 2), 1),
                                        Plane((512, 512), (2, 2), 1), (1, 10, 100)),
                   Alone((64, 128, 256), (1024, 512), 200_000, 4_000_000)),
    "full": Scale((8_000_000, 32_000_000), ((1_000_000, 784, (40,)), (2_870_000, 784, (40, 80, 160))),
                  (Cube((500, 500, 500), (4, 4, 4), 100), Cube((2000, 1000, 1000), (4, 4, 4), 100)),
                  (Plane((32768, 8192), (16, 4), 10),), 0, 256 << 20, 9,
                  30, 256 << 20,
                  Programs(128 << 20, (128 << 20, 784, 40), Cube((256, 256, 256), (4, 2, 2), 1),
                           Plane((2048, 2048), (4, 4), 1), (1, 10, 100)),
                  Alone((500, 1000, 1000), (16384, 8192), 16_000_000, 256_000_000)),
}
#: What share of a block is packed of small records.
_SMALL_RECORDS = 32

#: Samples of whole programs.
_WHOLE = 3

#: Whether ways in one process, and ways with a Spark job an iteration, are measured beside vispark's.
WAYS = {"all": (True, True), "without-jobs": (True, False), "ours": (False, False)}

BENCHMARKS = ("transport", "latency", "regression", "kmeans", "heat", "flow", "kernels", "tax", "exchanges", "text",
              "tables", "publications", "udfs", "whole")

console = Console(width=200 if not sys.stdout.isatty() else None)


def measured(scale: Scale, device: str, partitions: int, only: tuple[str, ...]) -> Iterator[Group]:
    """Yield the groups asked for, one after the other, each with a Spark context of its own; again where one has more.
    """
    cores = machine.cores()
    partitions = partitions or scale.partitions or cores
    if "transport" in only:
        with context(device, cores) as sc:
            kind = device_of(sc)
            yield from transport.in_a_job(sc, kind, cores, scale.block, scale.samples, _progress("transport"))
        yield from transport.alone(kind, cores, scale.block, scale.samples, _progress("transport"))
        yield packing.run(scale.block // _SMALL_RECORDS, scale.samples, _progress("packing"))
    if "latency" in only:
        with context(device, cores) as sc:
            fused = Fused.on(*_units(device_of(sc), cores))
            yield latency.run(sc, partitions, fused, scale.jobs, _progress("latency"))
    for rows in scale.rows if "regression" in only else ():
        with context(device, cores) as sc:
            settings = Settings(*_units(device_of(sc), cores), scale.samples, *WAYS[scale.ways])
            yield regression.run(sc, Points(rows, partitions), settings, _progress(f"regression, {rows:,} rows"))
    for rows, features, centers in scale.clouds if "kmeans" in only else ():
        with context(device, cores) as sc:
            settings = Settings(*_units(device_of(sc), cores), scale.samples, *WAYS[scale.ways])
            cloud = Cloud(rows, features, max(centers), partitions)
            yield from kmeans.run(sc, cloud, centers, settings, _progress("K-means"))
    for cube in scale.cubes if "heat" in only else ():
        with context(device, cores) as sc:
            settings = Settings(*_units(device_of(sc), cores), scale.samples, *WAYS[scale.ways])
            yield from heat.run(sc, cube, settings, _progress("heat"))
    for plane in scale.planes if "flow" in only else ():
        with context(device, cores) as sc:
            settings = Settings(*_units(device_of(sc), cores), scale.samples, *WAYS[scale.ways])
            yield from flow.run(sc, plane, settings, _progress("Navier-Stokes"))
    if "kernels" in only:
        yield from _kernels(scale, device)
    if "tax" in only:
        with context(device, cores) as sc:
            settings, recorder = Settings(*_units(device_of(sc), cores), scale.samples), _progress("framework tax")
            yield tax.of_regression(sc, Points(scale.rows[-1], partitions), settings, recorder)
            rows, features, centers = scale.clouds[-1]
            yield from tax.of_kmeans(sc, Cloud(rows, features, max(centers), partitions), centers, settings, recorder)
            yield tax.of_heat(sc, scale.cubes[-1], settings, recorder)
            yield tax.of_flow(sc, scale.planes[-1], settings, recorder)
    for solver in [*map(heat.solver, scale.cubes), *map(flow.solver, scale.planes)] if "exchanges" in only else ():
        yield overlap.run(solver, _kind(device), scale.samples, _progress(f"exchanges of {solver.name}"))
    if "udfs" in only:
        with context(device, cores) as sc:
            yield udfs.run(sc, scale.text // 16, scale.samples, _progress("functions over columns"))
    with tempfile.TemporaryDirectory(prefix="vb-text-") as directory:
        if "text" in only:
            with context(device, cores) as sc:
                yield text.run(sc, Path(directory), scale.text, scale.samples, _progress("text"))
        if "tables" in only:
            with context(device, cores) as sc:
                yield from tables.run(sc, Path(directory), scale.text, scale.samples, _progress("tables"))
        if "publications" in only:
            with context(device, cores) as sc:
                yield publications.run(sc, device, scale.text, scale.samples, _progress("publications"))
        if "whole" in only:
            with context(device, cores) as sc:
                kind, units = _units(device_of(sc), cores)
                yield from whole.run(sc, scale.programs, Fused.on(kind, units), kind, Path(directory), _WHOLE,
                                     _progress("whole programs"))


def _kernels(scale: Scale, device: str) -> Iterator[Group]:
    """Measure kernels by themselves, on the first device."""
    devices, groups = open_devices(_kind(device)), []
    alone, options = scale.alone, (scale.samples, _progress("kernels"))
    for group in itertools.chain(generated.of_steps(devices[0], alone.shape, *options),
                                 generated.of_chains(devices[0], alone.plane, *options),
                                 generated.of_stencils(devices[0], alone.shape, *options),
                                 generated_rows.of_rows(devices[0], alone.rows, *options),
                                 generated_rows.of_keys(devices[0], alone.records, *options)):
        groups.append(group)
        yield group
    for opened in devices:
        opened.close()
    # Not before: what else was measured is worth having.
    generated.check(groups)


def _kind(device: str) -> str:
    """Return the device's kind without a worker."""
    return ("cuda" if machine.gpus() else "host") if device == "auto" else device


def _units(kind: str, cores: int) -> tuple[str, int]:
    """Return a device's kind and its multiprocessors, or cores."""
    return kind, machine.gpus()[0].multiprocessors if kind == "cuda" else cores


def _progress(name: str) -> Callable[[str], None]:
    """Return a writer of progress: a line, on a terminal written anew for each sample, else one for each case's first
    sample.
    """
    met: list[str] = []
    began = time.monotonic()

    def done(case: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{name}: sample {len(met) + 1} ({case})")
        elif case not in met:
            print(f"{time.monotonic() - began:.0f} s: {name}: {case}", file=sys.stderr, flush=True)
        met.append(case)
    return done


def _so_far(start: float) -> dict[str, object]:
    """Return the seconds that a run has taken since ``start``, and the load of the machine now."""
    return {"seconds": time.monotonic() - start, "load_average_after": list(os.getloadavg())}


def _arguments(out: Path | None) -> list[str]:
    """Return this run's arguments, with no more of the output file than its name: the rest is this machine's."""
    return [argument.replace(str(out), out.name) if out else argument for argument in sys.argv[1:]]


@click.group(invoke_without_command=True, help=__doc__)
@click.option("--scale", type=click.Choice(list(SCALES)), default="small", show_default=True)
@click.option("--device", type=click.Choice(["auto", "host", "cuda", "null"]), default="auto", show_default=True,
              help="null, which does nothing, for kernels alone.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where the samples go, as JSON.")
@click.option("--only", type=click.Choice(BENCHMARKS), multiple=True, help="May be given several times.")
@click.option("--partitions", type=click.IntRange(1), help="Of latency and regression.")
@click.option("--samples", type=click.IntRange(1), help="Of each case, instead of the scale's.")
@click.option("--rows", type=click.IntRange(1), multiple=True, help="Of regression, instead of the scale's.")
@click.option("--ways", type=click.Choice(list(WAYS)), default="all", show_default=True,
              help="Those without a Spark job an iteration, or only vispark's.")
@click.option("--program", "programs", type=click.Choice(whole.PROGRAMS), multiple=True,
              help="Of the whole programs only this one; may be given several times.")
@click.option("--largest", is_flag=True, help="Of several sizes of a benchmark only the last.")
@click.option("--note", help="What else is to be said of the run; it is kept with the samples.")
@click.pass_context
def main(called: click.Context, scale: str, device: str, out: Path | None, only: tuple[str, ...],
         partitions: int | None, samples: int | None, rows: tuple[int, ...], ways: str, programs: tuple[str, ...],
         largest: bool, note: str | None) -> None:
    if called.invoked_subcommand:
        return
    if device == "null" and only != ("kernels",):
        raise click.UsageError("the device null computes nothing: it is for --only kernels")
    chosen = replace(SCALES[scale], ways=ways)
    if largest:
        chosen = replace(chosen, rows=chosen.rows[-1:], clouds=chosen.clouds[-1:], cubes=chosen.cubes[-1:],
                         planes=chosen.planes[-1:])
    if rows:
        chosen = replace(chosen, rows=rows)
    if samples:
        chosen = replace(chosen, samples=samples)
    if programs:
        chosen = replace(chosen, programs=replace(chosen.programs, names=programs))
    start, groups = time.monotonic(), []
    with environment():
        about = {"command": ["python", "-m", "benchmarks", *_arguments(out)], "scale": scale, "device": device,
                 "began": datetime.now(UTC).isoformat(timespec="seconds"), **machine.commit(),
                 "machine": machine.description(), "gpus_used": machine.gpus_used()} | ({"note": note} if note else {})
        for group in measured(chosen, device, partitions or 0, only or BENCHMARKS):
            if group not in groups:
                groups.append(group)
            if out:
                out.write_text(json.dumps(document(groups, **about, **_so_far(start)), indent=1) + "\n")
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    console.print(table(groups, f"{about['machine']['cpu']}, {machine.cores()} cores"))
    console.print(f"{time.monotonic() - start:.0f} s" + (f"; samples in {out}" if out else ""))


@contextmanager
def _refused() -> Iterator[None]:
    """Report files that do not go together as the caller's mistake."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@main.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="A directory.")
@click.option("--format", type=click.Choice(["svg", "png", "pdf"]), default="svg", show_default=True)
def plot(results: tuple[Path, ...], out: Path, format: str) -> None:
    """Draw figures of results that are kept: of one run, or of several with other sizes or GPUs."""
    with _refused():
        for path in plots.draw(results, out, format):
            console.print(path)


@main.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def scaling(results: tuple[Path, ...]) -> None:
    """Print how much faster programs are on several GPUs, from results that are kept."""
    runs = [plots.results(path) for path in results]
    with _refused():
        console.print(plots.scaling_table(runs))
    for run in runs:
        console.print(f"{run.name}: {run.commit[:7]}, {run.gpus} GPUs. {run.note}".rstrip())


@main.command()
@click.argument("before", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def compare(before: Path, after: Path) -> None:
    """Print the ratios of two runs side by side, as of two commits on one machine."""
    with _refused():
        runs = [read(path) for path in (before, after)]
    title = " and ".join(f"{about['commit'][:7]}" for about, _ in runs)
    console.print(comparison(runs[0][1], runs[1][1], title))


if __name__ == "__main__":
    main()
