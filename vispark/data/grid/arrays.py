"""Arrays of files that hold several, Zarr groups and HDF5 files: which of them are the fields of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from vispark.data.grid import attributes
from vispark.data.grid.chunks import check_readable
from vispark.data.grid.stored import FilesOf, StoredField


@dataclass(frozen=True)
class ArrayFacts:
    """Shape, dtype and chunks of an array in a file, the attribute that says how its numbers are packed, and its field.

    ``chunks`` is None where the array has none. Where ``is_cuttable``, parts of any shape are read alone.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: tuple[int, ...] | None
    packing: str
    field: StoredField
    is_cuttable: bool = False


@dataclass(frozen=True)
class FileFacts:
    """Arrays of a file by name, "" where the file is one array, and the attributes that describe a grid, if any."""

    path: str
    arrays: Mapping[str, ArrayFacts]
    attributes: Mapping[str, Any] | None = None

    @property
    def names(self) -> dict[str, str]:
        """The arrays that were saved as a grid's fields, by the names of those fields; empty for files of others."""
        saved = (self.attributes or {}).get("fields", {})
        return {name: name or attributes.CELLS for name in saved}


def fields_of(file: FileFacts, files: FilesOf, name: str, *,
              is_array: bool = False) -> StoredField | dict[str, StoredField]:
    """Return the fields of a grid in a file.

    Parameters
    ----------
    file : FileFacts
        The file.
    files : FilesOf
        The grid.
    name : str
        The one field that is wanted; empty for all.
    is_array : bool
        Whether that is an array's name, rather than a field's, for which a file's only array stands.

    Raises
    ------
    PlanError
        If a field is not there, of another shape, packed, or in chunks that the grid's splits cut through.
    """
    saved = file.names
    if name:
        is_only = not is_array and len(file.arrays) == 1
        return _field(file, files, next(iter(file.arrays)) if is_only else name)
    if files.fields:
        return {each: _field(file, files, saved.get(each, each)) for each in files.fields}
    if set(saved) == {""} or set(file.arrays) == {""}:
        return _field(file, files, saved.get("", ""))
    arrays = saved or {each: each for each, array in file.arrays.items() if array.shape == files.shape}
    if not arrays:
        raise PlanError(f"{file.path} has no array of the grid's shape {files.shape}: it has {_list(file)}")
    return {field: _field(file, files, array) for field, array in arrays.items()}


def one_array(file: FileFacts, name: str) -> FileFacts:
    """Narrow a file to one of its arrays: a file of it alone, with the grid that it was saved from.

    Raises
    ------
    PlanError
        If there is no such array.
    """
    array = _array(file, name)
    field = next((field for field, saved in file.names.items() if saved == name), None)
    path = f"{file.path}/{name}"
    if field is None or file.attributes is None:
        return FileFacts(path, {"": array})
    return FileFacts(path, {attributes.CELLS: array}, attributes.of_field(file.attributes, field))


def _array(file: FileFacts, name: str) -> ArrayFacts:
    if name not in file.arrays:
        raise PlanError(f"{file.path} has no array {name!r}: it has {_list(file)}")
    return file.arrays[name]


def _field(file: FileFacts, files: FilesOf, name: str) -> StoredField:
    array, what = _array(file, name), f"{file.path}/{name}" if name else file.path
    if array.shape != files.shape:
        raise PlanError(f"{what} has shape {array.shape}, and the grid {files.shape}. It was saved from a grid of "
                        "another shape")
    if array.dtype.kind not in "biufc":
        raise PlanError(f"{what} is of dtype {array.dtype}; cells hold numbers")
    if array.packing:
        raise PlanError(f"{what} has numbers that are packed, as its attribute {array.packing} says: write it "
                        "unpacked, by xarray for instance, which unpacks what it opens")
    if array.chunks is not None and not array.is_cuttable:
        check_readable(array.shape, files.splits, array.chunks, what)
    return array.field


def _list(file: FileFacts) -> str:
    """Return the arrays of a file with their shapes, for errors."""
    return ", ".join(f"{name!r} of {array.shape}" for name, array in file.arrays.items()) or "none"


def grid_arrays(file: FileFacts) -> dict[str, ArrayFacts]:
    """Return the arrays that a grid may be made of: of those with 1 to 3 axes, the ones shaped as the largest is.

    Raises
    ------
    PlanError
        If there is none.
    """
    numbers = {name: array for name, array in file.arrays.items()
               if 1 <= len(array.shape) <= 3 and array.dtype.kind in "biufc" and not array.packing}
    if not numbers:
        raise PlanError(f"{file.path} has no array of numbers with 1 to 3 axes: it has {_list(file)}")
    shape = max((array.shape for array in numbers.values()), key=lambda each: (len(each), np.prod(each)))
    return {name: array for name, array in numbers.items() if array.shape == shape}
