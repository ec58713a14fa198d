"""Keys stay on the host: a worker keeps them as a sealed blob and cannot read more than their number.

Keys may be of any class that pickles, so that the blob may be a pickle. Whoever can write it could run code in every
process that reads it; hence it carries a tag that only holders of the session's secret can make, and that is checked
first.
"""

from __future__ import annotations

import hmac
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgpack
import numpy as np
from pyspark import cloudpickle

from gpu_worker.protocol import codec
from gpu_worker.protocol.errors import ProtocolError, RecordError, Unauthorized
from gpu_worker.protocol.keys import NUMBERS
from gpu_worker.protocol.publications import OPEN_TAG, PICKLED, TAG_BYTES
from vispark.data.grid.key import BlockKey, grid_of
from vispark.data.grid.spec import FUNCTION, GridSpec
from vispark.data.records.layout import BY_NAME, PYTHON, held_as
from vispark.data.records.validation import is_number

_PLAIN = frozenset({str, bytes, int, float, bool, type(None), tuple})
_MSGPACK = b"m"
_ARRAY = b"a"
_GRID = b"g"
_PICKLE = PICKLED
_dumps: Callable[[object], bytes] = cloudpickle.dumps
#: What pickling raises for what it cannot pickle.
_UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError)


class Keyring:
    """Keys derived from a session's secret, one for each use.

    Parameters
    ----------
    secret : bytes
        Known to the driver and its executors only.

    Examples
    --------
    >>> ring = Keyring(b"a secret of 32 bytes, at random.")
    >>> ring.open(ring.seal(b"keys"))
    b'keys'
    """

    __slots__ = ("_auth", "_sealing")
    TAG = TAG_BYTES

    def __init__(self, secret: bytes):
        if not secret:
            raise ValueError("a session's secret is empty; use secrets.token_bytes(32)")
        self._sealing = hmac.digest(secret, b"vispark: seal keys", "sha256")
        self._auth = hmac.digest(secret, b"vispark: greet workers", "sha256")

    @property
    def auth(self) -> bytes:
        """The 32 bytes that workers get to see as the session's secret; no blob can be forged with them."""
        return self._auth

    def seal(self, blob: bytes) -> bytes:
        """Return ``blob`` behind its HMAC-SHA256 tag."""
        return hmac.digest(self._sealing, blob, "sha256") + blob

    def open(self, sealed: bytes) -> bytes:
        """Return the blob that :meth:`seal` was given.

        Raises
        ------
        Unauthorized
            If the tag is not this session's.
        """
        sealed = bytes(sealed)
        tag, blob = sealed[:self.TAG], sealed[self.TAG:]
        if not hmac.compare_digest(tag, hmac.digest(self._sealing, blob, "sha256")):
            raise Unauthorized("a partition's keys were not sealed by this session; they were changed or are another's")
        return blob


def pack_keys(keys: Sequence[Any], *, seal: Callable[[bytes], bytes]) -> bytes:
    """Return the sealed blob of a partition's keys.

    Raises
    ------
    RecordError
        If a key can be neither packed nor pickled.
    """
    numbers = numbers_of(keys) if keys else None
    if numbers is not None:
        return seal(NUMBERS + numbers[0].encode() + b";" + numbers[1].tobytes())
    return seal(_packed(keys) or _stacked(keys) or _places(keys) or _pickled(keys))


def numbers_of(keys: Sequence[Any]) -> tuple[str, np.ndarray] | None:
    """Return keys that are numbers of one type as an array, which workers can read too, and what the type is called in
    a :class:`~vispark.data.records.layout.RecordPart`; None for other keys, and for ints beyond 64 bits.

    Examples
    --------
    >>> numbers_of([3, 4])
    ('int', array([3, 4]))
    >>> numbers_of(["a"]) is None
    True
    """
    kind = type(keys[0])
    if len(set(map(type, keys))) > 1 or not (kind in (int, float) or (isinstance(keys[0], np.generic)
                                                                      and keys[0].dtype.kind in "iuf")):
        return None
    try:
        dtype = PYTHON[kind] if kind in PYTHON else keys[0].dtype
        return kind.__name__ if kind in PYTHON else dtype.str, np.fromiter(keys, dtype, len(keys))
    except OverflowError:
        return None


def unpack_keys(keys: bytes, count: int, *, open: Callable[[bytes], bytes]) -> list[Any]:
    """Return the keys of a partition of ``count`` records from their sealed blob.

    Raises
    ------
    Unauthorized
        If ``open`` refuses the blob, or it is of a publication and pickled.
    ProtocolError
        If it does not hold ``count`` keys.
    """
    if not count and not keys:
        return []
    blob = _opened(bytes(keys), open)
    if blob[:1] == NUMBERS:
        name, _, data = blob[1:].partition(b";")
        array = np.frombuffer(data, held_as(name.decode()))
        unpacked = array.tolist() if name.decode() in BY_NAME else list(array)
    elif blob[:1] == _MSGPACK:
        unpacked = msgpack.unpackb(memoryview(blob)[1:], use_list=False)
    elif blob[:1] == _ARRAY:
        dtype, _, data = blob[1:].partition(b";")
        unpacked = np.frombuffer(data, dtype.decode())
    elif blob[:1] == _GRID:
        unpacked = codec.decode(blob[1:], _Places).keys()
    elif blob[:1] == _PICKLE:
        unpacked = pickle.loads(memoryview(blob)[1:])
    else:
        raise ProtocolError("a partition's keys are neither msgpack, array, places nor pickle: they are of another "
                            "version")
    if len(unpacked) != count:
        raise ProtocolError(f"a partition of {count} records has {len(unpacked)} keys")
    return list(unpacked)


def _opened(keys: bytes, open: Callable[[bytes], bytes]) -> bytes:
    """Return the blob of keys without its tag; of a publication it has none, and is never a pickle."""
    if keys[:TAG_BYTES] != OPEN_TAG:
        return open(keys)
    if keys[TAG_BYTES:TAG_BYTES + 1] == PICKLED:
        raise Unauthorized("a publication's keys are pickled; none but the session that made them may read them")
    return keys[TAG_BYTES:]


def _packed(keys: Sequence[Any]) -> bytes | None:
    """Return keys as msgpack, if they survive the round trip unchanged."""
    level: Sequence[Any] = keys
    while level:
        types = set(map(type, level))
        if not types <= _PLAIN:
            return None
        level = list(chain.from_iterable(key for key in level if type(key) is tuple)) if tuple in types else ()
    try:
        packed: bytes = msgpack.packb(keys)
    except (OverflowError, ValueError):     # an int beyond 64 bits; lone surrogates, or tuples nested too deeply
        return None
    return _MSGPACK + packed


def _stacked(keys: Sequence[Any]) -> bytes | None:
    """Return keys as an array, if they are NumPy scalars of one numeric type; pickling takes ten times as long."""
    if len(set(map(type, keys))) > 1 or not isinstance(keys[0], np.generic) or not is_number(keys[0]):
        return None
    dtype = keys[0].dtype
    return _ARRAY + dtype.str.encode() + b";" + np.fromiter(keys, dtype, len(keys)).tobytes()


@dataclass(frozen=True, slots=True)
class _Places:
    """Keys of blocks of one grid: its description, names and dtypes of its fields, and the blocks' numbers."""

    description: GridSpec
    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    numbers: tuple[int, ...]

    def keys(self) -> list[BlockKey]:
        grid = grid_of(self.description, tuple(zip(self.names, self.dtypes, strict=True)))
        return [BlockKey(grid, self.description.position_of(number)) for number in self.numbers]


def _places(keys: Sequence[Any]) -> bytes | None:
    """Return keys of blocks of one grid as the grid's description and numbers, if that has no functions, which only a
    pickle holds.
    """
    if set(map(type, keys)) != {BlockKey} or any(key.grid != keys[0].grid for key in keys):
        return None
    grid = keys[0].grid
    if any(edge.rule == FUNCTION for each in grid.description.edges for edge in each.edges):
        return None
    names, dtypes = (tuple([field[item] for field in grid.fields]) for item in (0, 1))
    places = _Places(grid.description, names, dtypes, tuple([key.number for key in keys]))
    return _GRID + codec.encode(places, _Places)


def _pickled(keys: Sequence[Any]) -> bytes:
    """Return keys as Spark itself would pickle them, classes of the user's script included."""
    try:
        pickled: bytes = _dumps(keys)
    except _UNPICKLABLE as error:
        index = next((index for index, key in enumerate(keys) if not _pickles(key)), 0)
        raise RecordError(f"the key of record {index} is of type {type(keys[index]).__name__} and cannot be pickled "
                          f"({error}); use a key of a type that can") from error
    return _PICKLE + pickled


def _pickles(key: object) -> bool:
    try:
        _dumps(key)
    except _UNPICKLABLE:
        return False
    return True
