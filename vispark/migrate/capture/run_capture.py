"""Capture: the folder that ``vispark record`` writes, of JSON and arrays alone, for its owner alone.

``capture.json`` has the operations, verdicts and results, ``arrays.npz`` the arrays that it names. Nothing in it is
executed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vispark.migrate.errors import CaptureError

#: Version of the form; a capture of another one is refused.
VERSION = 1
_JSON, _ARRAYS = "capture.json", "arrays.npz"
#: The most items of a container, and bytes of an array, that are kept as they are.
MOST_ITEMS, MOST_BYTES = 10_000, 8 << 20


@dataclass
class CapturedCall:
    """Operation at one place of the program, over all times that it ran.

    Attributes
    ----------
    end_line, end_column : int
        Where the call ends in its file; with the method's name that is one call.
    on : int or None
        Number of the call whose result it was made on the last time.
    times : int
        Runs of it.
    starts, seconds : list of float
        When each run of an action began, from the program's start, and the time that it took.
    driver : float
        Seconds of the program's own code from the operation before a run of it on; the mean without the first run,
        before which the loop had not begun.
    is_read : bool or None
        Whether the translator takes its function with the types of the records; None where it was not asked.
    results : list
        Encoded results of an action, as many as are kept.
    sample : Any
        Encoded records of what is cached; None where there are none.
    ranks : dict
        How many axes the numbers and arrays have that its function finds around it.
    count, record_bytes : int or None, float or None
        Records of what is cached, and the bytes that one takes on a device.
    pairs : bool
        Whether its function is one of pairs, and translates where these are dicts.
    of : str
        What ``vmap`` has to be told of its records, as ``"record"`` of tuples whose items differ in type.
    named : list of str
        The class's name and the fields of the named tuples that its function is of; empty for other records.
    stays : str
        Why its port has it as a Spark job although the function translates; of filters.
    operations : dict
        Operations by dtype and kind that its function, and those of the maps before it, take for one record.
    traffic : list of float
        Bytes that the kernels of these read and write for one record, and those of the result.
    reads : str or None
        Why ``vispark.read_text`` does not give the records of a map of lines of text; empty where it did, None where
        that was not tried.
    probes : dict
        Seconds that an action took on devices, by :func:`.probe.probe`: at once, and for one record, or None.
    """

    number: int
    file: str
    line: int
    end_line: int
    end_column: int
    method: str
    on: int | None = None
    times: int = 0
    starts: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    is_read: bool | None = None
    reason: str = ""
    reason_line: int = 0
    reason_file: str = ""
    records: str = ""
    results: list[Any] = field(default_factory=list)
    sample: Any = None
    keys: list[int] | None = None
    num_keys: list[str] = field(default_factory=list)
    ranks: dict[str, int] = field(default_factory=dict)
    count: int | None = None
    record_bytes: float | None = None
    operations: dict[str, float] = field(default_factory=dict)
    traffic: list[float] = field(default_factory=list)
    pairs: bool = False
    of: str = ""
    named: list[str] = field(default_factory=list)
    stays: str = ""
    reads: str | None = None
    driver: float = 0.0
    probes: dict[str, list[float | None]] = field(default_factory=dict)


@dataclass
class RunCapture:
    """Recording of one run.

    Attributes
    ----------
    sources : dict
        The text of each file of the user's that operations are in.
    failed : str
        What ended the program, if it did not end by itself.
    folder : str
        Where it ran.
    """

    script: str
    arguments: list[str]
    digest: str
    seconds: float = 0.0
    failed: str = ""
    spark: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    calls: list[CapturedCall] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    version: int = VERSION
    folder: str = ""

    def before(self, call: CapturedCall) -> Iterator[CapturedCall]:
        """Yield the operations that a call is on the results of, from the last one back; of a loop that makes an RDD
        of its own result each once.
        """
        seen, number = {call.number}, call.on
        while number is not None and number not in seen:
            seen.add(number)
            yield self.calls[number]
            number = self.calls[number].on

    def write(self, folder: Path) -> None:
        """Write it into a folder that only its owner can read.

        Raises
        ------
        CaptureError
            If the folder has something else, or cannot be written.
        """
        prepare_folder(folder)
        try:
            with os.fdopen(_opened(folder / _ARRAYS), "wb") as file:
                np.savez_compressed(file, **self.arrays)  # type: ignore[arg-type]
            document = {name: value for name, value in asdict(self).items() if name != "arrays"}
            with os.fdopen(_opened(folder / _JSON), "w", encoding="utf-8") as text:
                json.dump(document, text, ensure_ascii=False, allow_nan=False)
        except OSError as error:
            raise CaptureError(f"{folder} cannot be written: {error.strerror or error}") from error

    @classmethod
    def read(cls, folder: Path) -> RunCapture:
        """Return the capture of a folder.

        Raises
        ------
        CaptureError
            If it is no capture, or one of another version.
        """
        try:
            document = json.loads((folder / _JSON).read_text(encoding="utf-8"))
            if not isinstance(document, dict) or document.get("version") != VERSION:
                raise CaptureError(f"{folder} is a capture of version {dict(document).get('version')}, and this "
                                   f"vispark reads {VERSION}: record the script again")
            with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
                kept = {name: arrays[name] for name in arrays.files}
            calls = [CapturedCall(**call) for call in document.pop("calls")]
            return cls(**document, calls=calls, arrays=kept)
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CaptureError(f"{folder} is no capture of vispark record: {error}") from error

    def value(self, encoded: Any) -> Any:
        """Return a value from its encoded form; what could not be kept is an :class:`Opaque`."""
        return decoded(encoded, self.arrays)


@dataclass(frozen=True)
class Opaque:
    """Value that a capture does not hold, by the name of its type."""

    kind: str


def digest_of(text: str) -> str:
    """Return the digest of a script by which a capture is known to be of it."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_capture(path: Path) -> bool:
    """Return whether a path is a folder with a capture."""
    return (path / _JSON).is_file()


def prepare_folder(folder: Path) -> None:
    """Make a folder for a capture, which only its owner can read; one that has a capture is as good.

    Raises
    ------
    CaptureError
        If the folder has something else, or cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / _JSON).exists():
            raise CaptureError(f"{folder} is there and is no capture: name another folder with --out")
        folder.chmod(0o700)
    except OSError as error:
        raise CaptureError(f"{folder} cannot be made: {error.strerror or error}; --out names another folder") from error


def remove_capture(folder: Path) -> None:
    """Remove the files of a capture, if they are there."""
    (folder / _JSON).unlink(missing_ok=True)
    (folder / _ARRAYS).unlink(missing_ok=True)


def _opened(path: Path) -> int:
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


# -- values -----------------------------------------------------------------------------------------------------------

def encoded(value: Any, arrays: dict[str, np.ndarray], depth: int = 8) -> Any:
    """Return a value as JSON, with its arrays put into ``arrays`` under new names.

    Examples
    --------
    >>> arrays = {}
    >>> encoded([(1, np.arange(2)), (2, np.arange(2))], arrays)
    {'list': [{'tuple': [1, {'array': 'a0'}]}, {'tuple': [2, {'array': 'a1'}]}]}
    >>> decoded({"tuple": [1, {"array": "a1"}]}, arrays)
    (1, array([0, 1]))
    """
    if value is None or (isinstance(value, bool | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, int) and not isinstance(value, np.generic):
        return value if abs(value) < 1 << 53 else {"int": str(value)}
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if type(value) in (list, tuple, dict) and len(value) <= MOST_ITEMS and depth:
        return _container(value, arrays, depth - 1)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU" and value.nbytes <= MOST_BYTES:
        name = f"a{len(arrays)}"
        arrays[name] = np.array(value, subok=False)
        return {"array": name} if isinstance(value, np.ndarray) else {"number": name}
    return {"opaque": type(value).__qualname__}


def _container(value: Any, arrays: dict[str, np.ndarray], depth: int) -> Any:
    if isinstance(value, dict):
        return {"dict": [[encoded(key, arrays, depth), encoded(each, arrays, depth)] for key, each in value.items()]}
    first = value[0] if value else None
    if type(value) is list and len(value) > 2 and isinstance(first, np.ndarray) and first.dtype.kind in "biufc" and all(
            type(each) is np.ndarray and each.dtype == first.dtype and each.shape == first.shape for each in value) \
            and first.nbytes * len(value) <= MOST_BYTES:
        name = f"a{len(arrays)}"
        arrays[name] = np.stack(value)
        return {"rows": name}
    return {type(value).__name__: [encoded(each, arrays, depth) for each in value]}


def decoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the value that :func:`encoded` made a form of; see there."""
    if not isinstance(value, dict):
        return value
    (kind, of), = value.items()
    match kind:
        case "list":
            return [decoded(each, arrays) for each in of]
        case "tuple":
            return tuple([decoded(each, arrays) for each in of])
        case "dict":
            return {decoded(key, arrays): decoded(each, arrays) for key, each in of}
        case "rows":
            return list(arrays[of])
        case "array":
            return arrays[of]
        case "number":
            return arrays[of][()]
        case "int":
            return int(of)
        case "float":
            return float(of)
        case "complex":
            return complex(float(of[0]), float(of[1]))
    return Opaque(str(of))
