"""Files in object stores, S3, Google's and Azure's, by obstore."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.extras import install
from vispark.data.storage.location import FileState, Store

try:
    import obstore
    from obstore import exceptions
    from obstore import store as stores
except ImportError:
    obstore = None  # type: ignore[assignment]
try:
    import fsspec
    from obstore import fsspec as obstore_fsspec
except ImportError:
    fsspec = None

#: What a store raises that does not answer, or refuses.
ERRORS: tuple[type[Exception], ...] = () if obstore is None else (exceptions.BaseError,)

#: The schemes of URLs: behind them is the name of a bucket, or of Azure's container.
SCHEMES = ("s3", "s3a", "gs", "az")

#: What sets a store up, by the scheme: variables of the environment, of the driver's and of Spark's tasks.
_SETTINGS = {"s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL",
             "gs": "GOOGLE_SERVICE_ACCOUNT, the path of a key",
             "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"}

#: The most bytes that are put with one request.
_ONE_PUT = 64 << 20


def opened(root: str) -> Any:
    """Return obstore's store of a bucket, by its URL; settings come from the environment.

    Raises
    ------
    PlanError
        If obstore is not installed, or the store cannot be used as it is set up.
    """
    if obstore is None:
        raise PlanError(f"{root} is an object store, which needs obstore: {install('s3')}")
    try:
        return stores.from_url(root)
    except (ValueError, exceptions.BaseError) as error:
        raise PlanError(f"{root} cannot be used: {str(error).partition(chr(10))[0]}{_advice(root)}") from error


def _advice(root: str) -> str:
    names = _SETTINGS[root.partition("://")[0].removesuffix("a")]
    return f"; the environment sets it up, of Spark's tasks too (spark.executorEnv): {names}"


def register(scheme: str, url: str) -> None:
    """Make fsspec use obstore for a scheme, for those that read rows by fsspec, unless it has a library for that.

    Raises
    ------
    PlanError
        If neither is installed.
    """
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        if obstore is None:
            raise PlanError(f"{url} is in an object store, which needs obstore: {install('s3')}") from error
        obstore_fsspec.register(scheme)


class Objects(Store):
    """Store of objects, which are put and replaced as a whole."""

    renames = False

    def __init__(self, root: str) -> None:
        self.bucket = opened(root)
        self.advice = _advice(root)
        self.errors = ERRORS
        self.refusals = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)

    def state(self, name: str) -> FileState:
        """Return an object's size and ETag."""
        entry = obstore.head(self.bucket, name)
        return FileState(entry["size"], str(entry["e_tag"] or entry["last_modified"]))

    def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Return ranges of an object, which are asked for side by side."""
        return obstore.get_ranges(self.bucket, name, starts=[start for start, _ in ranges],
                                  ends=[stop for _, stop in ranges], coalesce=0)

    def content(self, name: str) -> Any:
        """Return all bytes of an object, by one request."""
        return obstore.get(self.bucket, name).bytes()

    def write(self, name: str, pieces: Iterable[Any], nbytes: int) -> None:
        """Put an object: by one request, or in parts that the store puts together at the end."""
        if nbytes <= _ONE_PUT:
            obstore.put(self.bucket, name, b"".join(pieces), use_multipart=False)
        else:
            obstore.put(self.bucket, name, iter(pieces), chunk_size=_ONE_PUT // 4, max_concurrency=4)

    def names(self, name: str) -> dict[str, bool]:
        """Return the parts of names that follow a prefix."""
        prefix = f"{name.rstrip('/')}/" if name else ""
        listing = obstore.list_with_delimiter(self.bucket, prefix)
        return {**{one["path"].rpartition("/")[2]: True for one in listing["objects"]},
                **{one.rstrip("/").rpartition("/")[2]: False for one in listing["common_prefixes"]}}

    def remove(self, name: str) -> None:
        """Delete all objects behind a prefix."""
        for batch in obstore.list(self.bucket, f"{name.rstrip('/')}/"):
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(self.bucket, [one["path"] for one in batch])
