"""Clusters of this user: recorded before they are created, and found again by their ids."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpu_worker.deployment.records import Record, RecordStore, checked_name
from vispark.clusters.errors import ClusterError, ClusterRefused
from vispark.clusters.platforms import ABSENT, PLATFORMS, ClusterStatus, Platform, SubmitSettings, checked, platform_of

#: State of a record in its platform's hands.
REQUESTED = "requested"


class Clusters:
    """Clusters of this user.

    Parameters
    ----------
    records : RecordStore, optional
        Their records; the user's own where it is not given.
    """

    def __init__(self, records: RecordStore | None = None):
        self._records = records or RecordStore(commands=("vispark cluster list", "vispark cluster delete"))

    def plan(self, name: str, platform: str, given: dict[str, str]) -> dict[str, Any]:
        """Return the plan of :meth:`create`; nothing is asked of anybody.

        Raises
        ------
        OptionError
            If a name, a platform or a parameter is none.
        """
        kind = platform_of(platform)
        values = checked(kind.parameters, given)
        identity = "0" * 32
        record = Record(checked_name(name), identity, "", values, "recorded",
                        datetime.now(UTC).isoformat(timespec="seconds"), platform, kind.place(identity, values))
        return {"name": name, "platform": platform, "parameters": values, "plan": kind.plan(record)}

    def create(self, name: str, platform: str, given: dict[str, str]) -> Record:
        """Create a cluster, or go on with a creation that was cut short.

        Raises
        ------
        OptionError
            If a name, a platform or a parameter is none.
        ClusterRefused
            If nothing was created; there is no record then.
        ClusterError
            If it is not known whether something was; the record stays.
        """
        kind = platform_of(platform)
        values = checked(kind.parameters, given)
        record = self._recorded(name, platform, values, kind)
        try:
            details = kind.create(record)
        except ClusterRefused:
            self._records.remove(record)
            raise
        return self._records.set_state(record, REQUESTED, details)

    def _recorded(self, name: str, platform: str, values: dict[str, str], kind: Platform) -> Record:
        """Return the record of a cluster, a new one or that of a creation that was cut short."""
        identity = secrets.token_hex(16)
        place = kind.place(identity, values)
        return self._records.create(name, place.get("region", ""), values, platform, place, identity)

    def statuses(self, ask: bool = True) -> list[ClusterStatus]:
        """Return the clusters that are recorded, and those with vispark's tags that are not.

        Parameters
        ----------
        ask : bool
            Whether platforms are asked; else the states are the records'.
        """
        records = self._records.all()
        if not ask:
            return [_as_recorded(record) for record in records]
        found = [self._status(record) for record in records]
        for record, status in zip(records, found, strict=True):
            if record.state == "stopping" and status.state == ABSENT:
                self._records.remove(record)
        found = [each for each, record in zip(found, records, strict=True)
                 if (record.state, each.state) != ("stopping", ABSENT)]
        known = {record.id for record in records}
        for platform in PLATFORMS:
            asked = [record for record in records if record.platform == platform]
            if asked or platform == "standalone":
                found += [replace(each, is_recorded=False) for each in self._strays(platform, asked)
                          if each.id not in known]
        return sorted(found, key=lambda each: (each.name, each.id))

    def _strays(self, platform: str, records: list[Record]) -> list[ClusterStatus]:
        """Return the clusters of a platform that has vispark's tags; none where it does not answer."""
        try:
            return platform_of(platform).strays(records)
        except ClusterError:
            return []

    def _status(self, record: Record) -> ClusterStatus:
        try:
            return platform_of(record.platform).status(record)
        except ClusterError as error:
            return replace(_as_recorded(record), state="not known", details={"error": str(error)})

    def status(self, name: str, ask: bool = True) -> ClusterStatus:
        """Return the status of one cluster.

        Raises
        ------
        ClusterError
            If there is no record of it, or its platform does not answer.
        """
        record = self._records.read(name)
        return platform_of(record.platform).status(record) if ask else _as_recorded(record)

    def delete(self, name: str, identity: str = "", dry_run: bool = False) -> ClusterStatus:
        """Delete a cluster that :meth:`create` made, and forget it; one whose creation was cut short, too.

        Parameters
        ----------
        name : str
            Of the cluster.
        identity : str
            Its id, where there is no record of it here.
        dry_run : bool
            Whether only to look whether it would be deleted.

        Returns
        -------
        ClusterStatus
            As it was before.

        Raises
        ------
        ClusterRefused
            If it was not created here; nothing is deleted then.
        ClusterError
            If there is none of that name, or its platform does not answer.
        """
        record = next((each for each in self._records.all() if each.name == checked_name(name)), None)
        if record is None:
            record = self._stray(name, identity)
        elif identity and identity != record.id:
            raise ClusterRefused(f"cluster {name} has the id {record.id}, not {identity}; it is left as it is")
        platform = platform_of(record.platform)
        status = platform.status(record)
        if not dry_run:
            if platform.delete(record):
                self._records.remove(record)
            else:
                self._records.set_state(record, "stopping")
        return status

    def _stray(self, name: str, identity: str) -> Record:
        """Return a record of a cluster that has none, by the tags that its platform knows."""
        found = [each for each in self.statuses() if each.name == name and not each.is_recorded]
        if not found:
            known = ", ".join(each.name for each in self._records.all())
            raise ClusterError(f"no cluster {name} is recorded here; there are {known or 'none'}")
        status = next((each for each in found if each.id == identity), None)
        if status is None:
            raise ClusterRefused(f"cluster {name} was not created by this user on this machine; it is left as it is. "
                                 f"Whoever may end it does so by: vispark cluster delete {name} --id {found[0].id}")
        return Record(name, identity, "", status.details, REQUESTED, "", status.platform, status.details)

    def submission(self, name: str) -> tuple[Record, SubmitSettings]:
        """Return a cluster's record, and the settings with which programs reach it.

        Raises
        ------
        ClusterError
            If there is no such cluster, or it cannot take programs.
        """
        record = self._records.read(name)
        return record, platform_of(record.platform).submission(record)


def _as_recorded(record: Record) -> ClusterStatus:
    return ClusterStatus(record.name, record.id, record.platform, record.state, details=record.details)
