"""Records of the clusters that this user created, one file each, written before anything is asked of a provider."""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from gpu_worker.commands.deployment.errors import ClusterError
from gpu_worker.protocol.errors import OptionError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True)
class Record:
    """Record of one cluster.

    Attributes
    ----------
    name : str
        As the user calls it.
    id : str
        32 hexadecimal digits: the tag by which the cluster is found again, and the token by which it is created once.
    region : str
        Where it is; empty where the platform has no regions.
    parameters : dict of str to str
        Of its template or platform, those that were given.
    state : str
        "recorded": nothing is known to have been created; "requested": the provider took the request; "stopping".
    created : str
        When the record was made, in UTC.
    platform : str
        Which kind of cluster it is.
    details : dict of str to str
        What its platform has to know to find it again.
    """

    name: str
    id: str
    region: str
    parameters: dict[str, str]
    state: str
    created: str
    platform: str = "emr"
    details: dict[str, str] = field(default_factory=dict)


class RecordStore:
    """Store of records, below the user's directory for state; only the user may read it.

    Parameters
    ----------
    directory : Path, optional
        Another place of the records.
    command : str
        The command about clusters that the errors' words name.
    """

    def __init__(self, directory: Path | None = None,
                 command: str = "vispark cluster"):
        self._directory = directory or Path(platformdirs.user_state_dir("vispark")) / "clusters"
        self._command = command

    def create(self, name: str, region: str, parameters: dict[str, str], platform: str = "emr",
               details: dict[str, str] | None = None, identity: str = "") -> Record:
        """Record a cluster that is to be created, or return the record of a creation that was cut short.

        Parameters
        ----------
        name, region, parameters, platform, details : str and dict of str to str
            As the record has them.
        identity : str
            Its id; a new one where it is empty.

        Raises
        ------
        ClusterError
            If there is a record of that name with other parameters, or of a cluster that was requested already.
        """
        path = self.path(name)
        record = Record(name, identity or secrets.token_hex(16), region, parameters, "recorded",
                        datetime.now(UTC).isoformat(timespec="seconds"), platform, details or {})
        if self._write(path, record, is_new=True):
            return record
        earlier = self.read(name)
        if (earlier.parameters, earlier.region, earlier.platform) != (parameters, region, platform):
            raise ClusterError(f"cluster {name} was recorded at {earlier.created} in "
                               f"{earlier.region or earlier.platform} with {_listed(earlier.parameters)}; create it "
                               f"with these, or: {self._command} delete {name}")
        if earlier.state != "recorded":
            raise ClusterError(f"cluster {name} is {earlier.state} since {earlier.created}: {self._command} list")
        return earlier

    def read(self, name: str) -> Record:
        """Return a record.

        Raises
        ------
        ClusterError
            If there is none of that name, or it cannot be read.
        """
        path = self.path(name)
        try:
            return Record(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            names = [record.name for record in self.all()]
            raise ClusterError(f"no cluster {name} is recorded here; there are {', '.join(names) or 'none'}") from None
        except (OSError, ValueError, TypeError) as error:
            raise ClusterError(f"the record {path} cannot be read: {error}") from error

    def all(self) -> list[Record]:
        """Return all records, by their names."""
        if not self._directory.is_dir():
            return []
        return [self.read(path.stem) for path in sorted(self._directory.glob("*.json"))]

    def set_state(self, record: Record, state: str, details: dict[str, str] | None = None) -> Record:
        """Write a record's state, and details that its platform has learnt, and return the record."""
        changed = replace(record, state=state, details=record.details | (details or {}))
        self._write(self.path(record.name), changed, is_new=False)
        return changed

    def remove(self, record: Record) -> None:
        """Forget a cluster."""
        self.path(record.name).unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """Return the file of a record."""
        return self._directory / f"{checked_name(name)}.json"

    def _write(self, path: Path, record: Record, *, is_new: bool) -> bool:
        """Write a record as a whole; return ``False`` if it is to be a new one and there is one already."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(dir=path.parent, prefix=".record-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(asdict(record), file, indent=2)
                    file.flush()
                    os.fsync(file.fileno())
                if is_new:
                    os.link(written, path)
                else:
                    os.replace(written, path)
            finally:
                Path(written).unlink(missing_ok=True)
        except FileExistsError:
            return False
        except OSError as error:
            raise ClusterError(f"the record {path} cannot be written, and nothing was asked for: {error}") from error
        return True


def checked_name(name: str) -> str:
    """Return a name that clusters may have.

    Raises
    ------
    OptionError
        If it is none.

    Examples
    --------
    >>> checked_name("night-run")
    'night-run'
    """
    if not _NAME.fullmatch(name):
        raise OptionError(f"a cluster's name is a letter, then letters, digits and hyphens, 63 at most, not {name!r}")
    return name


def _listed(parameters: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in parameters.items()) or "no parameters"
