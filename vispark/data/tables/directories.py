"""Directories of tables: their files, and the columns that directories called ``name=value`` stand for."""

from __future__ import annotations

import glob
import os
import re
from typing import Any
from urllib.parse import unquote

from gpu_worker.protocol.errors import PlanError
from vispark.data.records.text.splits import files_of, fsspec_of, looking_up

_COLUMN = re.compile(r"[^=/]+=[^/]*")
_INTEGER = re.compile(r"-?\d{1,18}")

#: The name that Hive and Spark give a directory of rows without a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def values_of(path: str) -> dict[str, Any]:
    """Return the columns that a file's directories give all of its rows: integers, other numbers, or text.

    Raises
    ------
    PlanError
        If a directory stands for rows without a value.

    Examples
    --------
    >>> values_of("/data/year=2020/w=0.5/city=Ulm/part-0.parquet")
    {'year': 2020, 'w': 0.5, 'city': 'Ulm'}
    """
    values = {}
    for part in path.split("/")[:-1]:
        if _COLUMN.fullmatch(part):
            name, _, text = part.partition("=")
            if text == _NO_VALUE:
                raise PlanError(f"{path} has rows without a value of {name!r}; read the other directories, by a "
                                "pattern or by their names with commas between")
            values[unquote(name)] = _value(unquote(text))
    return values


def _value(text: str) -> int | float | str:
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def table_files(path: str, kind: str) -> list[str]:
    """Return the files of a path, or of several with commas between; those of a directory ``name=value`` are its
    parent's, too.

    Raises
    ------
    PlanError
        If there is none; ``kind`` says of which kind they should be.
    """
    with looking_up(path):
        return [file for one in path.split(",") for file in _nested(one.strip()) or _flat(one.strip(), kind)]


def _flat(path: str, kind: str) -> list[str]:
    return [name for name, _ in files_of(path, kind)]


def _nested(path: str) -> list[str]:
    """Return the files in and below directories ``name=value`` of a directory; none where it has no such ones."""
    if "://" in path:
        system = fsspec_of(path)
        root = system._strip_protocol(path).rstrip("/")
        names = [] if glob.has_magic(root) or not system.isdir(root) else system.find(root)
        return sorted(system.unstrip_protocol(name) for name in names if _is_nested(name[len(root) + 1:]))
    if not os.path.isdir(path):
        return []
    names = [os.path.join(where, name) for where, _, files in os.walk(path) for name in files]
    return sorted(os.path.abspath(name) for name in names if _is_nested(os.path.relpath(name, path)))


def _is_nested(name: str) -> bool:
    *directories, file = name.split("/")
    return bool(directories) and all(map(_COLUMN.fullmatch, directories)) and not file.startswith(("_", "."))
