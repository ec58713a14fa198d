"""Platforms of clusters: what each does, and the table of them. A new platform is a module and a line of the table."""

from __future__ import annotations

import re
import shlex
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Protocol

from gpu_worker.commands.deployment.records import Record
from gpu_worker.protocol.errors import OptionError

#: Name of a platform: the module that has it, as ``PLATFORM``; it is imported when the platform is used. Who has more
#: platforms adds theirs, as :mod:`vispark.migrate.clusters` does.
PLATFORMS: dict[str, str] = {"emr": "gpu_worker.commands.deployment.emr"}

#: States of a cluster.
ABSENT, STARTING, READY, ENDED = "absent", "starting", "ready", "ended"


@dataclass(frozen=True)
class ClusterParameter:
    """Parameter of a platform: name, default, check of its text, and meaning.

    ``check`` raises ValueError, whose message says what would be right.
    """

    name: str
    default: str
    check: Callable[[str], object]
    meaning: str


@dataclass(frozen=True)
class ClusterStatus:
    """Status of a cluster as its platform knows it.

    Attributes
    ----------
    name, id, platform : str
        As recorded, or as the tags say.
    state : str
        "absent": nothing of it is there; "starting", "ready"; "ended": it was there.
    is_recorded : bool
        Whether this user has a record of it.
    details : dict of str to str
        What else is known: addresses, machines, states in the platform's own words.
    """

    name: str
    id: str
    platform: str
    state: str
    is_recorded: bool = True
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SubmitSettings:
    """Settings with which ``spark-submit`` reaches a cluster.

    Attributes
    ----------
    master : str
        As ``--master`` takes it.
    conf : dict of str to str
        Spark's and vispark's settings; what the user gives goes first.
    options : tuple of str
        Further options of ``spark-submit``.
    environment : dict of str to str
        Variables for ``spark-submit``.
    secrets : dict of str to str
        Settings that go to ``spark-submit`` in a file that no other user reads, and not by its command line.
    """

    master: str
    conf: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


class Platform(Protocol):
    """Platform of clusters, a base of those that there are. Records come with all parameters, checked.

    Attributes
    ----------
    parameters : tuple of ClusterParameter
        The parameters of a cluster.
    costs : bool
        Whether a cluster costs money, so that creating one is to be confirmed.
    """

    parameters: tuple[ClusterParameter, ...]
    costs: bool = False

    def checked(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the values of all parameters, defaults included.

        Raises
        ------
        OptionError
            If one is unknown, or not as it should be; all problems are named.
        """
        return checked(self.parameters, texts)

    def place(self, identity: str, values: Mapping[str, str]) -> dict[str, str]:
        """Return the details that are recorded before anything is created, by the cluster's id and parameters."""
        return {}

    @abstractmethod
    def plan(self, record: Record) -> dict[str, Any]:
        """Return all that :meth:`create` would make, as JSON has it; nothing is asked of anybody."""

    @abstractmethod
    def create(self, record: Record) -> dict[str, str]:
        """Create what is not there yet, and return details for the record.

        Raises
        ------
        ClusterRefused
            If nothing was created.
        ClusterError
            If it is not known whether something was.
        """

    @abstractmethod
    def status(self, record: Record) -> ClusterStatus:
        """Return the status of a recorded cluster, which is looked up by its tag."""

    def unrecorded(self, records: list[Record], region: str) -> list[ClusterStatus]:
        """Return the clusters with vispark's tags, where this platform's records say to look, and in a region."""
        return []

    @abstractmethod
    def delete(self, record: Record) -> bool:
        """Delete all that has the cluster's tag; return whether it is gone already.

        Raises
        ------
        ClusterRefused
            If what is there was created by others.
        """

    @abstractmethod
    def submission(self, record: Record) -> SubmitSettings:
        """Return the settings with which a program reaches the cluster."""

    def connection(self, record: Record) -> str:
        """Return the ways to a cluster, as text."""
        settings = self.submission(record)
        words = ["--master", settings.master, *settings.options,
                 *(word for name, value in settings.conf.items() for word in ("--conf", f"{name}={value}"))]
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in settings.environment.items())
        return (f"cluster {record.name}, {record.platform}\n\n"
                f"    {variables}spark-submit {shlex.join(words)} SCRIPT\n\n"
                f"or, which hands on its secrets too:\n\n    vispark submit --cluster {record.name} SCRIPT\n")


def platform_of(name: str) -> Platform:
    """Return a platform by its name.

    Raises
    ------
    OptionError
        If there is none of that name; the message lists those that there are.

    Examples
    --------
    >>> platform_of("enr")
    Traceback (most recent call last):
        ...
    gpu_worker.protocol.errors.OptionError: there is no platform enr; meant emr?
    """
    if name not in PLATFORMS:
        raise OptionError(f"there is no platform {name}; {_near(name, list(PLATFORMS))}")
    platform: Platform = import_module(PLATFORMS[name]).PLATFORM
    return platform


def checked(parameters: tuple[ClusterParameter, ...], texts: Mapping[str, str]) -> dict[str, str]:
    """Return the values of all parameters, defaults included.

    Raises
    ------
    OptionError
        If one is unknown, or not as it should be; all problems are named.

    Examples
    --------
    >>> checked((ClusterParameter("cores", "2", whole(1, 64), "Cores."),), {"cores": "0"})
    Traceback (most recent call last):
        ...
    gpu_worker.protocol.errors.OptionError: cores is a whole number from 1 to 64, not '0'
    """
    names = [each.name for each in parameters]
    problems = [f"{name} is no parameter of this platform; {_near(name, names)}" for name in texts if name not in names]
    values = {each.name: texts.get(each.name, each.default) for each in parameters}
    for parameter in parameters:
        try:
            parameter.check(values[parameter.name])
        except ValueError as error:
            problems.append(f"{parameter.name} is {error}, not {values[parameter.name]!r}")
    if problems:
        raise OptionError("; ".join(problems))
    return values


def whole(low: int, high: int, empty: bool = False) -> Callable[[str], object]:
    """Return the check of a whole number within limits; with ``empty`` of no text, too."""
    def check(text: str) -> None:
        if (text or not empty) and not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ValueError(f"a whole number from {low} to {high}" + (", or empty" if empty else ""))
    return check


def matches(pattern: str, meaning: str) -> Callable[[str], object]:
    """Return the check of a text against a regular expression."""
    def check(text: str) -> None:
        if not re.fullmatch(pattern, text):
            raise ValueError(meaning)
    return check


#: Check of memory as Spark writes it.
memory = matches(r"[1-9]\d*[mgMG]?|", "memory as 512m or 4g, or empty")


def device(text: str) -> None:
    """Check a device as ``spark.vispark.device`` takes it; the imports of devices are the option's."""
    if not re.fullmatch(r"[a-z]+(:[1-9]\d*)?", text):
        raise ValueError("a device as spark.vispark.device takes it, as auto, host or host:2")


def _near(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"meant {near[0]}?" if near else f"there are {', '.join(known)}"
