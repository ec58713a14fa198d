"""Parquet files of partitions: written under other names by tasks, put in place by the driver when all are whole."""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import types as spark

from gpu_worker.protocol.errors import PlanError
from vispark.data.records.partition_schema import FetchedPartition
from vispark.data.records.text.splits import NO_ANSWER, fsspec_of, looking_up
from vispark.data.storage.systems import block_for, opened
from vispark.data.tables import output
from vispark.data.tables.arrow import pa

#: How files may be compressed.
COMPRESSIONS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")

#: Bytes of a row group.
_GROUP = 64 << 20


@dataclass(frozen=True)
class PartFile:
    """File of a partition, and its Arrow schema."""

    partition: int
    name: str
    schema: Any


@dataclass(frozen=True)
class WriteTask:
    """Task that writes a partition to a file of its own name, by a schema if there is one; a partition without records
    is not written.
    """

    directory: str
    compression: str
    schema: spark.StructType | None = None

    def __call__(self, partition: int, partitions: Iterable[FetchedPartition]) -> Iterator[PartFile]:
        for content in partitions:
            columns = output.columns_of(content)
            if not columns:
                return
            yield self._written(partition, columns)

    def without_rows(self) -> PartFile:
        """Write the file of a table without rows, by the schema."""
        return self._written(0, ())

    def _written(self, partition: int, columns: Sequence[output.OutputColumn]) -> PartFile:
        # Of its own name, so that a repeated task and its twin do not write into one file.
        name = f"part-{partition:05}-{uuid.uuid4().hex}.parquet"
        path = f"{self.directory}/{name}"
        try:
            return PartFile(partition, name, _write(path, columns, self.compression, self.schema))
        except (*NO_ANSWER, pa.ArrowException) as error:
            raise PlanError(f"{path} cannot be written: {str(error).partition(chr(10))[0]}") from error


def _batches(columns: Sequence[output.OutputColumn], wanted: spark.StructType | None) -> Iterator[Any]:
    """Yield record batches of a schema's columns; one without rows where there are none."""
    if wanted is None:
        yield from output.batches(list(columns), _GROUP)
        return
    target = pa.schema([(field.name, output.arrow_type(field.name, field.dataType)) for field in wanted.fields])
    if not columns:
        yield pa.RecordBatch.from_pylist([], schema=target)
        return
    for batch in output.batches(output.fitted(list(columns), wanted), _GROUP):
        yield output.cast(batch, target)


def _write(path: str, columns: Sequence[output.OutputColumn], compression: str,
           wanted: spark.StructType | None) -> Any:
    """Write one file, and return its schema."""
    batches = _batches(columns, wanted)
    first = next(batches)
    # Dictionaries of floats are larger than the floats.
    plain = [field.name for field in first.schema if not pa.types.is_floating(field.type)
             and not pa.types.is_nested(field.type)]
    schema = _with_vectors(first.schema)
    with _sink(path, output.nbytes_of(columns)) as sink, \
            pa.parquet.ParquetWriter(sink, schema, compression=compression, use_dictionary=plain) as writer:
        for batch in itertools.chain((first,), batches):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return first.schema


def _with_vectors(schema: Any) -> Any:
    """Return a schema whose metadata tell Spark which structs are vectors, if there are any."""
    if not any(output.is_vector(field.type) for field in schema):
        return schema
    return schema.with_metadata({"org.apache.spark.sql.parquet.row.metadata": output.named(schema, None).json()})


def _sink(path: str, nbytes: int) -> Any:
    """Return the stream that writes a file of columns of so many bytes."""
    if "://" not in path:
        return pa.fs.LocalFileSystem().open_output_stream(path)
    system, name = opened(path)
    # What Parquet adds to columns that are not compressed, at most.
    return pa.PythonFile(system.open(name, "wb", **block_for(system, nbytes + nbytes // 8 + (1 << 20))), mode="w")


class TableDirectory:
    """Directory that comes to be as a whole: files are written beside it, or below it where a URL says it.

    Parameters
    ----------
    path : str
        The directory, which may not have anything in it unless it is to be replaced.
    overwrite : bool
        Whether to replace what is there.

    Raises
    ------
    PlanError
        If something is there, and is not to be replaced.
    """

    def __init__(self, path: str, *, overwrite: bool):
        if not path:
            raise PlanError("the path is empty; it names the directory of a table")
        self._is_url = "://" in path
        self.path = path.rstrip("/") if self._is_url else os.path.abspath(path)
        self._overwrite = overwrite
        mark = uuid.uuid4().hex
        if self._is_url:
            self._system = fsspec_of(self.path)
            self.partial = f"{self.path}/_temporary-{mark}"
        else:
            parent, name = os.path.split(self.path)
            self.partial = os.path.join(parent, f".{name}.{mark}.partial")
        with looking_up(self.path):
            is_there = not overwrite and self._is_there()
        if is_there:
            raise PlanError(f"{path} is there already; give another path, or overwrite=True to replace it")

    def _is_there(self) -> bool:
        if self._is_url:
            return bool(self._system.exists(self.path)) and bool(self._system.ls(self.path, detail=False))
        return os.path.isfile(self.path) or (os.path.isdir(self.path) and bool(os.listdir(self.path)))

    def begin(self) -> None:
        """Make the directory that tasks write to.

        Raises
        ------
        PlanError
            If it cannot be made.
        """
        try:
            if self._is_url:
                self._system.makedirs(self.partial, exist_ok=True)
            else:
                os.makedirs(self.partial)
        except NO_ANSWER as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise PlanError(f"{self.path} cannot be made: {reason}; write to a directory that is there or can be made"
                            ) from error

    def commit(self, parts: Sequence[PartFile]) -> None:
        """Put the files in place, and ``_SUCCESS`` beside them; what other attempts wrote is deleted.

        Raises
        ------
        PlanError
            If a file is not where the driver looks for it, or it cannot be put in place.
        """
        try:
            self._commit_url(parts) if self._is_url else self._commit_local(parts)
        except FileNotFoundError as error:
            raise PlanError(f"a file that a task wrote is not there for the driver: {error}; the path must be of a "
                            "file system that all nodes share") from error
        except NO_ANSWER as error:
            raise PlanError(f"{self.path} cannot be written: {str(error).partition(chr(10))[0]}") from error

    def _commit_local(self, parts: Sequence[PartFile]) -> None:
        names = {part.name: f"part-{part.partition:05}.parquet" for part in parts}
        for name in names.keys() - set(os.listdir(self.partial)):
            raise FileNotFoundError(os.path.join(self.partial, name))
        for name in os.listdir(self.partial):
            path = Path(self.partial, name)
            path.rename(path.with_name(names[name])) if name in names else path.unlink()
        Path(self.partial, "_SUCCESS").touch()
        if self._overwrite and os.path.lexists(self.path):
            before = f"{self.partial}.before"
            os.rename(self.path, before)
            os.rename(self.partial, self.path)
            shutil.rmtree(before) if os.path.isdir(before) else os.unlink(before)
            return
        try:
            os.rename(self.partial, self.path)
        except OSError as error:
            raise PlanError(f"{self.path} has come to be there meanwhile: {error}") from error

    def _commit_url(self, parts: Sequence[PartFile]) -> None:
        before = [] if not self._system.exists(self.path) else \
            [name for name in self._system.ls(self.path, detail=False)
             if not name.rstrip("/").rpartition("/")[2].startswith("_temporary-")]
        for name in before:
            self._system.rm(name, recursive=True)
        for part in parts:
            self._system.mv(f"{self.partial}/{part.name}", f"{self.path}/part-{part.partition:05}.parquet")
        with suppress(FileNotFoundError):       # an object store has no directory without objects
            self._system.rm(self.partial, recursive=True)
        self._system.pipe_file(f"{self.path}/_SUCCESS", b"")

    def abandon(self) -> None:
        """Delete what tasks wrote."""
        if not self._is_url:
            shutil.rmtree(self.partial, ignore_errors=True)
            return
        with suppress(*NO_ANSWER):
            self._system.rm(self.partial, recursive=True)
