"""Bytes and time that it takes to read a grid's blocks from files and from S3, by format.

One process reads the blocks one after another, as tasks do, without Spark::

    python -m benchmarks.storage [MIB [SAMPLES]]

S3 is moto's server on loopback: its times say nothing of S3, and its requests say what is read. The last way reads a
whole ``.npy`` file for each block.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import click
import numpy as np

from tests.system.object_store import ObjectStore, serving
from vispark import Grid
from vispark.data.grid import attributes, npy, zarr_files
from vispark.data.grid.chunks import block_chunks
from vispark.data.grid.files import opened
from vispark.data.grid.stored import FilesOf, StoredField
from vispark.data.storage.opening import Locations, located


def write(directory: str, grid: Grid, array: np.ndarray) -> dict[str, str]:
    """Write a grid in each format; the paths."""
    paths = {name: f"{directory}/{name}" for name in ("u.npy", "blocks", "u.zarr", "zstd.zarr")}
    npy.write_block(paths["u.npy"], array)
    for key in grid.blocks():
        npy.write_block(npy.block_path(paths["blocks"], key.position), array[key.slices])
    for name, compress in (("u.zarr", False), ("zstd.zarr", True)):
        fields = {"": array.dtype}
        documents = zarr_files.new_documents(
            {attributes.CELLS: (grid.shape, array.dtype, block_chunks(grid.description, paths[name]))},
            {attributes.NAME: attributes.attributes_of(grid.description, fields)}, compress)
        zarr_files.write_blocks(paths[name], documents, ((key, array[key.slices]) for key in grid.blocks()))
        for key, document in documents.items():
            (located(paths[name]) / key).write([document], len(document))
    return paths


def read(grid: Grid, path: str) -> None:
    """Read all blocks of a grid, as a task does."""
    field, locations = opened(path, FilesOf(grid.shape, grid.splits)), Locations()
    assert isinstance(field, StoredField)
    for key in grid.blocks():
        field.block(key, locations)


def read_whole(grid: Grid, path: str) -> None:
    """Read the whole file for each block, and take the block from it."""
    for key in grid.blocks():
        content = located(path).content()
        cells = np.frombuffer(content, "f4", offset=len(content) - 4 * int(np.prod(grid.shape)))
        np.ascontiguousarray(cells.reshape(grid.shape)[key.slices])


def measured(grid: Grid, directory: str, array: np.ndarray, samples: int, store: ObjectStore | None) -> list[dict]:
    """Measure each way in turns, and give its median time and what it read over the grid's bytes."""
    paths = write(directory, grid, array)
    ways: dict[str, Callable[[], None]] = {name: lambda path=path: read(grid, path) for name, path in paths.items()}
    ways["u.npy, whole for each block"] = lambda: read_whole(grid, paths["u.npy"])
    times: dict[str, list[float]] = {name: [] for name in ways}
    shares: dict[str, float | None] = {}
    for _ in range(samples):
        for name, way in ways.items():
            before, start = len(store.requests()) if store else 0, time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
            shares[name] = store.read_since(before) / array.nbytes if store else None
    against = statistics.median(times["u.npy, whole for each block"])
    return [{"way": name, "where": "S3" if store else "local", "read over grid": shares[name], "samples": each,
             "median": statistics.median(each), "faster than whole": against / statistics.median(each)}
            for name, each in times.items()]


@click.command(help=__doc__)
@click.argument("mib", type=int, default=64)
@click.argument("samples", type=int, default=5)
def main(mib: int, samples: int) -> None:
    grid = Grid((8 * mib, 256, 128), (8, 1, 1))
    array = np.random.default_rng(1).random(grid.shape, "f4")
    with tempfile.TemporaryDirectory() as directory:
        rows = measured(grid, directory, array, samples, None)
    with serving() as store:
        os.environ.update(store.environment)
        rows += measured(grid, "s3://bucket", array, samples, store)
    print(f"{array.nbytes >> 20} MiB of float32, {grid.description.blocks} blocks, {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f}")
    print(f"{'where':6} {'way':28} {'read / grid':>11} {'median s':>9} {'MiB/s':>7} {'x whole':>8}")
    for row in rows:
        share = "" if row["read over grid"] is None else f"{row['read over grid']:.3f}"
        print(f"{row['where']:6} {row['way']:28} {share:>11} {row['median']:9.3f} "
              f"{(array.nbytes >> 20) / row['median']:7.0f} {row['faster than whole']:8.1f}")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
