"""Clusters of this user: recorded before they are created, and found again by their ids."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpu_worker.commands.deployment.errors import ClusterError, ClusterRefused
from gpu_worker.commands.deployment.platforms import ABSENT, PLATFORMS, ClusterStatus, SubmitSettings, platform_of
from gpu_worker.commands.deployment.records import Record, RecordStore, checked_name
from gpu_worker.protocol.errors import OptionError

#: State of a record in its platform's hands.
REQUESTED = "requested"
#: State of a cluster whose platform does not answer.
NOT_KNOWN = "not known"


class Clusters:
    """Clusters of this user.

    Parameters
    ----------
    platforms : tuple of str, optional
        The platforms whose clusters these are; all where they are not given.
    command : str
        The command that the errors' words name.
    records : RecordStore, optional
        Their records; the user's own where it is not given.
    """

    def __init__(self, platforms: tuple[str, ...] = (), command: str = "vispark cluster",
                 records: RecordStore | None = None):
        self._platforms = platforms or tuple(PLATFORMS)
        self._command = command
        self._records = records or RecordStore(command=command)

    def chosen(self, platform: str) -> str:
        """Return a platform's name as it was given, or that of the only one.

        Raises
        ------
        OptionError
            If none was given and there are several, or it is none of these.
        """
        if not platform and len(self._platforms) == 1:
            return self._platforms[0]
        if platform not in self._platforms:
            raise OptionError(f"--platform is one of {', '.join(sorted(self._platforms))}, not {platform!r}")
        return platform

    def plan(self, name: str, platform: str, texts: dict[str, str]) -> dict[str, Any]:
        """Return the plan of :meth:`create`; nothing is asked of anybody.

        Raises
        ------
        OptionError
            If a name, a platform or a parameter is none.
        """
        kind = platform_of(platform)
        values = kind.checked(texts)
        identity = "0" * 32
        record = Record(checked_name(name), identity, "", values, "recorded",
                        datetime.now(UTC).isoformat(timespec="seconds"), platform, kind.place(identity, values))
        return {"name": name, "platform": platform, "parameters": values, "plan": kind.plan(record)}

    def create(self, name: str, platform: str, texts: dict[str, str]) -> Record:
        """Create a cluster, or go on with a creation that was cut short.

        Raises
        ------
        OptionError
            If a name, a platform or a parameter is none.
        ClusterRefused
            If nothing was created; there is no record then, unless there was one before.
        ClusterError
            If it is not known whether something was; the record stays.
        """
        kind = platform_of(platform)
        values = kind.checked(texts)
        identity = secrets.token_hex(16)
        place = kind.place(identity, values)
        record = self._records.create(name, place.get("region", ""), values, platform, place, identity)
        try:
            details = kind.create(record)
        except ClusterRefused as error:
            if record.id == identity:
                self._records.remove(record)
                raise
            # The creation that was cut short may have made something.
            raise ClusterRefused(f"{error.message}; what an earlier try of {record.created} may have left is deleted "
                                 f"by: {self._command} delete {name}") from error
        return self._records.set_state(record, REQUESTED, details)

    def statuses(self, ask: bool = True, region: str = "") -> list[ClusterStatus]:
        """Return the clusters that are recorded, and those with vispark's tags that are not.

        A platform of which nothing else says that it cannot be asked is a status without a name, whose details have
        the error.

        Parameters
        ----------
        ask : bool
            Whether platforms are asked; else the states are the records'.
        region : str
            A region in which clusters that are not recorded are looked for, too.
        """
        records = self._all()
        if not ask:
            return [_as_recorded(record) for record in records]
        statuses = []
        for record in records:
            status = self._status(record)
            if record.state == "stopping" and status.state == ABSENT:
                self._records.remove(record)
            else:
                statuses.append(status)
        ids = {record.id for record in records}
        silent = {each.platform for each in statuses if each.state == NOT_KNOWN}
        statuses += [replace(each, is_recorded=False) for each in self._unrecorded(records, region)
                     if each.id not in ids and (each.name or each.platform not in silent)]
        return sorted(statuses, key=lambda each: (each.name, each.id))

    def _all(self) -> list[Record]:
        return [record for record in self._records.all() if record.platform in self._platforms]

    def _unrecorded(self, records: list[Record], region: str) -> list[ClusterStatus]:
        """Return the clusters that have vispark's tags, and one without a name, not known, for a platform that does not
        answer. Those to which nothing leads, no record, region or group of commands of their own, are not asked.
        """
        unrecorded = []
        for platform in self._platforms:
            of_platform = [record for record in records if record.platform == platform]
            if of_platform or region or platform == "standalone" or len(self._platforms) == 1:
                try:
                    unrecorded += platform_of(platform).unrecorded(of_platform, region)
                except ClusterError as error:
                    unrecorded.append(ClusterStatus("", "", platform, NOT_KNOWN, details={"error": str(error)}))
        return unrecorded

    def _status(self, record: Record) -> ClusterStatus:
        try:
            return platform_of(record.platform).status(record)
        except ClusterError as error:
            return replace(_as_recorded(record), state=NOT_KNOWN, details={"error": str(error)})

    def status(self, name: str, ask: bool = True) -> ClusterStatus:
        """Return the status of one cluster.

        Raises
        ------
        ClusterError
            If there is no record of it, or its platform does not answer.
        """
        record = self._records.read(name)
        return platform_of(record.platform).status(record) if ask else _as_recorded(record)

    def delete(self, name: str, identity: str = "", dry_run: bool = False, region: str = "") -> ClusterStatus:
        """Delete a cluster that :meth:`create` made, and forget it; one whose creation was cut short, too.

        Parameters
        ----------
        name : str
            Of the cluster.
        identity : str
            Its id, where there is no record of it here.
        dry_run : bool
            Whether only to look whether it would be deleted.
        region : str
            A region in which it is looked for, where there is no record of it here.

        Returns
        -------
        ClusterStatus
            As it was before; "not known" where its platform does not say.

        Raises
        ------
        ClusterRefused
            If it was not created here; nothing is deleted then.
        ClusterError
            If there is none of that name, or its platform does not answer.
        """
        record = self._known(name)
        if record is None:
            record = self._stray(name, region)
            if record.id != identity:
                raise ClusterRefused(f"cluster {name} was not created by this user on this machine; it is left as it "
                                     f"is. Whoever may end it does so by: {self._command} delete {name} --id "
                                     f"{record.id}")
        elif identity and identity != record.id:
            raise ClusterRefused(f"cluster {name} has the id {record.id}, not {identity}; it is left as it is")
        platform = platform_of(record.platform)
        # What is not known of a cluster does not keep it from being deleted.
        status = platform.status(record) if dry_run else self._status(record)
        if not dry_run:
            try:
                is_gone = platform.delete(record)
            except ClusterRefused:
                raise
            except ClusterError as error:
                stays = f"; the record stays: where the platform is gone for ever, remove {self._records.path(name)}"
                raise ClusterError(error.message + stays * bool(self._known(name))) from error
            if is_gone:
                self._records.remove(record)
            elif self._known(name):
                self._records.set_state(record, "stopping")
        return status

    def connection(self, name: str, region: str = "") -> str:
        """Return the ways to a cluster, as text.

        Raises
        ------
        ClusterError
            If there is none of that name, or it is not up.
        """
        record = self._known(name) or self._stray(name, region)
        return platform_of(record.platform).connection(record)

    def _known(self, name: str) -> Record | None:
        return next((record for record in self._all() if record.name == checked_name(name)), None)

    def _stray(self, name: str, region: str) -> Record:
        """Return a record of a cluster that has none, by the tags that its platform knows."""
        statuses = self.statuses(region=region)
        status = next((each for each in statuses if each.name == name and not each.is_recorded), None)
        if status is None:
            names = ", ".join(record.name for record in self._all())
            unasked = "".join(f"; {each.details['error']}" for each in statuses if not each.name)
            raise ClusterError(f"no cluster {name} is recorded here; there are {names or 'none'}{unasked}")
        return Record(name, status.id, status.details.get("region", ""), status.details, REQUESTED, "",
                      status.platform, status.details)

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
