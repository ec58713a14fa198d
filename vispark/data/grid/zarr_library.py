"""zarr-python over our stores, imported in this one place: with the first Zarr file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.extras import install
from vispark.data.storage.location import Location

try:
    import zarr
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store
    from zarr.buffer.cpu import NDBuffer, buffer_prototype
    from zarr.codecs import BytesCodec
    from zarr.codecs.bytes import Endian
    from zarr.storage import MemoryStore
except ImportError as error:
    raise PlanError(f"Zarr files need zarr-python, 3.1 or later: {install('zarr')}") from error

__all__ = ["BytesCodec", "Chunks", "Endian", "MemoryStore", "NDBuffer", "buffer_prototype", "zarr"]


class Chunks(Store):
    """Store of zarr-python: chunks at a location, with metadata that is known already and not asked for again.

    zarr-python calls it in its own thread, and each request of ours runs in one of that thread's helpers, so that the
    chunks of a block are read side by side.

    Parameters
    ----------
    place : Location
        The directory of the group.
    documents : mapping of str to bytes
        The metadata, by key.
    read_only : bool
        Whether chunks are only read.
    """

    def __init__(self, place: Location, documents: Mapping[str, bytes], *, read_only: bool) -> None:
        super().__init__(read_only=read_only)
        self._place, self._documents = place, documents

    def __eq__(self, other: object) -> bool:
        return self is other

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return the value of a key, or a range of it; None where there is no such key."""
        document = self._documents.get(key)
        if document is None and key.rpartition("/")[2] in METADATA:
            return None
        value = document if document is not None else await asyncio.to_thread(self._content, key, byte_range)
        return None if value is None else (prototype or buffer_prototype).buffer.from_bytes(value)

    def _content(self, key: str, byte_range: Any) -> Any:
        place = self._place / key
        try:
            if byte_range is None:
                return place.content()
            if isinstance(byte_range, RangeByteRequest):
                return place.read([(byte_range.start, byte_range.end)])[0]
            size = place.state().size
            start = byte_range.offset if isinstance(byte_range, OffsetByteRequest) else max(0, size - byte_range.suffix)
            return place.read([(start, size)])[0]
        except PlanError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None        # a chunk of nothing but the fill value
            raise

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Return ranges of several keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is a key."""
        return key in self._documents or await asyncio.to_thread((self._place / key).is_there)

    supports_writes = True
    supports_deletes = False
    supports_listing = False

    async def set(self, key: str, value: Any) -> None:
        """Write a chunk as a whole."""
        content = value.as_buffer_like()
        await asyncio.to_thread((self._place / key).write, [content], len(value))

    async def delete(self, key: str) -> None:
        """Refuse: nothing of a group is deleted."""
        raise NotImplementedError(key)

    def list(self) -> AsyncIterator[str]:
        """Refuse: keys are known from the metadata."""
        raise NotImplementedError

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Refuse, as :meth:`list`."""
        raise NotImplementedError(prefix)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Refuse, as :meth:`list`."""
        raise NotImplementedError(prefix)


#: The names of metadata, of Zarr 3 and 2.
METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata")
