"""Opening of paths and URLs as locations in stores."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

from gpu_worker.protocol.errors import PlanError
from vispark.data.storage import objects, systems
from vispark.data.storage.local import LocalFiles
from vispark.data.storage.location import Location, Store


def is_url(path: str) -> bool:
    """Return whether a path is a URL of something else than this machine's files."""
    return "://" in path and not path.startswith("file://")


class Locations:
    """Opener of locations, which uses one store for all of a bucket or a system, and so its connections.

    Examples
    --------
    >>> Locations()("/data/u.npy").name
    '/data/u.npy'
    """

    def __init__(self) -> None:
        self._stores: dict[str, Store] = {}

    def __call__(self, path: Any) -> Location:
        """Return the location of a path.

        Raises
        ------
        PlanError
            If it is empty, or a URL of a scheme that is not known, or that needs a package that is not installed.
        """
        path = os.fspath(path)
        if not path:
            raise PlanError("the path is empty; it names a file or a directory")
        if not is_url(path):
            name = unquote(urlsplit(path).path) if path.startswith("file://") else path
            return Location(path, self._store("", LocalFiles), name)
        scheme, _, rest = path.partition("://")
        if scheme not in objects.SCHEMES:
            root = f"{scheme}://{rest.partition('/')[0]}/"
            store = self._store(root, lambda: systems.FileSystem(path))
            return Location(path, store, store.system._strip_protocol(path))  # type: ignore[attr-defined]
        bucket, _, name = rest.partition("/")
        if not bucket:
            raise PlanError(f"{path} names no bucket; such URLs are {scheme}://bucket/name")
        root = f"{scheme}://{bucket}"
        return Location(path, self._store(root, lambda: objects.Objects(root)), name)

    def _store(self, root: str, make: Any) -> Store:
        if root not in self._stores:
            self._stores[root] = make()
        return self._stores[root]


def located(path: Any) -> Location:
    """Return the location of one path, as :class:`Locations` does."""
    return Locations()(path)
