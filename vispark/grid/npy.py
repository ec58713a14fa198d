"""Grids in ``.npy`` files: one for the whole grid, or one for each block. URLs go through fsspec."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.extras import install

try:
    import fsspec
except ImportError:
    fsspec = None


#: The name of a block's file, and its place.
_BLOCK = re.compile(r"block-(\d+(?:-\d+)*)\.npy")


def block_path(directory: Any, position: tuple[int, ...]) -> str:
    """Return the file of a block in a directory."""
    return f"{os.fspath(directory)}/block-{'-'.join(map(str, position))}.npy"


def field_path(directory: Any, field: str) -> str:
    """Return the directory of a field's blocks."""
    return f"{os.fspath(directory)}/{field}"


def saved_field(directory: Any, field: str) -> str:
    """Return the path of a field in a directory that a grid was saved in: a file, or a directory of its blocks.

    Raises
    ------
    PlanError
        If both are there.
    """
    blocks = field_path(directory, field)
    whole = f"{blocks}.npy"
    if not _is_there(whole):
        return blocks
    if _is_there(blocks):
        raise PlanError(f"field {field!r} is there twice, as {whole} and as blocks in {blocks}; give scatter the one "
                        f"that counts, as {{{field!r}: path}}")
    return whole


def saved_fields(directory: Any, first: tuple[int, ...]) -> list[str]:
    """Return the fields in a local directory that a grid was saved in; none where it has files of blocks, the ``first``
    one's
    among them.
    """
    path = os.fspath(directory)
    if _is_url(path) or not os.path.isdir(path) or os.path.isfile(block_path(path, first)):
        return []
    names = {entry.name.removesuffix(".npy") for entry in os.scandir(path)
             if (entry.is_file() and entry.name.endswith(".npy")) or os.path.isfile(block_path(entry.path, first))}
    return sorted(names)


def check_splits(directory: str, splits: tuple[int, ...]) -> None:
    """Check that a local directory with all blocks of a grid has those of a grid with these splits.

    Raises
    ------
    PlanError
        If they were saved with others.
    """
    if _is_url(directory) or not os.path.isdir(directory):
        return
    names = [match[1] for name in os.listdir(directory) if (match := _BLOCK.fullmatch(name))]
    found = {tuple(map(int, name.split("-"))) for name in names}
    saved = tuple(max(places) + 1 for places in zip(*found, strict=False))
    if found and saved != splits and len(found) == math.prod(saved):
        raise PlanError(f"the blocks in {directory} were saved with splits={saved}, and this grid has splits={splits}: "
                        "make it with those, or save the whole grid as one .npy file, which any splits can read")


def check_there(paths: Iterable[str]) -> None:
    """Check that local files exist; missing files at URLs are found when they are read.

    Raises
    ------
    PlanError
        If one is missing.
    """
    for path in paths:
        if path and not _is_url(path) and not os.path.isfile(path):
            raise PlanError(f"there is no file {path}; a grid is scattered from one .npy file of its shape, or from a "
                            "directory with a file for each field or block, as Grid.save writes them")


def read(path: str) -> np.ndarray:
    """Return the array in a file; a local file is mapped, and read as far as it is used.

    Raises
    ------
    PlanError
        If there is no such file, or it holds no array of numbers.
    """
    try:
        if _is_url(path):
            with _opened(path, "rb") as file:
                found = np.load(file, allow_pickle=False)
        else:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} cannot be read as .npy: {error}; a grid's files must be within reach of every node "
                        "that reads them") from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise PlanError(f"{path} holds several arrays; a grid's file is .npy, one for each field")
    return found


def write_block(path: str, block: np.ndarray) -> None:
    """Write one array; an existing file is replaced as a whole."""
    if _is_url(path):
        with _opened(path, "wb") as file:
            np.save(file, block)
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    # Of its own name, so that a repeated task and its twin do not write into one file.
    partial = f"{path}.{os.getpid()}.partial"
    with open(partial, "wb") as file:
        np.save(file, block)
    os.replace(partial, path)


def write_slabs(path: str, shape: tuple[int, ...], dtype: np.dtype, slabs: Iterable[np.ndarray]) -> None:
    """Write an array whose parts along the first axis come one after the other."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    if not _is_url(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with _opened(path, "wb") if _is_url(path) else open(path, "wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        for slab in slabs:
            file.write(np.ascontiguousarray(slab, dtype).data)


def _is_url(path: str) -> bool:
    return "://" in path


def _is_there(path: str) -> bool:
    if not _is_url(path):
        return os.path.exists(path)
    _need_fsspec(path)
    system, name = fsspec.core.url_to_fs(path)
    return system.exists(name)


def _need_fsspec(path: str) -> None:
    if fsspec is None:
        raise PlanError(f"{path} is a URL, which needs fsspec: {install('files')}")


@contextmanager
def _opened(path: str, mode: str) -> Iterator[BinaryIO]:
    _need_fsspec(path)
    with fsspec.open(path, mode) as file:
        yield file
