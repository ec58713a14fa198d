"""Attaching what another application of the user has published, as a VRDD."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark import SparkContext, StorageLevel

from gpu_worker.protocol.messages import DISK_TIERS, TIERS
from gpu_worker.protocol.publications import PublicationDetails, PublicationStatus
from vispark._utils.boundary import brief
from vispark.api.actions.publishing import checked_name, digest_of
from vispark.api.vrdd import VRDD
from vispark.errors import PublicationExists, PublicationLost
from vispark.plan.operation import AttachedPublication
from vispark.plan.operations.publications import AttachPublication
from vispark.runtime.driver.publications import attach as attach_in
from vispark.runtime.driver.publications import listed
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.retry import until_done
from vispark.runtime.driver.session import Session


@brief
def attach(sc: SparkContext, name: str, *, secret: str | None = None,
           otherwise: Callable[[], VRDD] | None = None) -> VRDD:
    """Return a publication of another application as a VRDD, without a copy.

    The device processes of this application map the memory that the publication lies in, on all of its nodes. They
    read it only: a kernel that writes to it faults, in this application alone. The memory stays for as long as this
    application has the VRDD, also if the one that published it ends.

    Parameters
    ----------
    sc : SparkContext
        Of this application, which has an executor on each node that has a part of it, and the same devices there.
    name : str
        As it was published.
    secret : str, optional
        The one that it was published with.
    otherwise : callable, optional
        Called if there is no such publication, or a part of it is lost; returns a VRDD, which is published under the
        name and returned. If another application is faster, its publication is attached.

    Returns
    -------
    VRDD
        Cached. Where workers lose it, it is attached again; it has no other lineage.

    Raises
    ------
    PublicationLost
        If there is no publication of that name, or not any more, where this application runs; also from an action, if
        it is lost later: with its node, or with its owner and its daemon.
    Unauthorized
        If it has another secret.
    DeviceUnavailable
        If it lies on a device that this application does not have.
    PlanError
        If ``name`` is no name of a publication: 1 to 128 printable characters.

    See Also
    --------
    VRDD.publish, publications

    Examples
    --------
    >>> _ = sc.parallelize(range(4), 2).cache("GPU").publish("numbers")
    >>> attach(sc, "numbers").collect()
    [0, 1, 2, 3]
    >>> attach(sc, "squares", otherwise=lambda: sc.parallelize([1, 4, 9]).cache("GPU")).sum()
    14
    """
    session = Session.of(sc)
    publication = AttachedPublication(checked_name(name), "", digest_of(secret))
    try:
        return _attached(session, publication)
    except PublicationLost:
        if otherwise is None:
            raise
    vrdd = otherwise()
    try:
        return vrdd.publish(name, secret=secret)
    except PublicationExists:
        pass
    try:
        return _attached(session, publication)       # another application was the first
    except PublicationLost:     # what is left of one of which a part is lost has the name
        return vrdd.publish(name, secret=secret, replace=True)


@brief
def publications(sc: SparkContext) -> tuple[PublicationStatus, ...]:
    """Return the publications that have a part on the driver's node, or where it reaches a worker by a socket.

    Parameters
    ----------
    sc : SparkContext

    Returns
    -------
    tuple of PublicationStatus
        Of each ``name``, ``application``, ``dataset``, ``partitions`` on all nodes, ``nbytes`` on these, the number
        of applications that are its ``readers`` there, and ``expires``: the seconds until it ends, below 0 while its
        owner or a reader is there.

    See Also
    --------
    VRDD.publish, attach

    Examples
    --------
    >>> _ = sc.parallelize(range(4), 2).cache("GPU").publish("listed")
    >>> [(each.name, each.partitions) for each in publications(sc) if each.name == "listed"]
    [('listed', 2)]
    """
    return listed(Session.of(sc))


@dataclass(frozen=True)
class NoRecords:
    """Function of a task that would load a publication's records, which there are none of outside of workers."""

    name: str

    def __call__(self, _: int, records: Iterable[Any]) -> Iterator[Any]:
        raise PublicationLost(f"the publication {self.name!r} is not attached here any more: attach it again")


def _attached(session: Session, wanted: AttachedPublication) -> VRDD:
    residency = session.residency(wanted.name)
    details: list[PublicationDetails] = []
    until_done(session, lambda: details.append(attach_in(session, wanted, residency)))
    return _vrdd(session, replace(wanted, key=details[-1].key), details[-1], residency)


def _vrdd(session: Session, attached: AttachedPublication, details: PublicationDetails, residency: Residency) -> VRDD:
    residency.cached = replace(residency.cached, spills=details.place if details.place in (TIERS, DISK_TIERS) else "")
    context, number = session.context, details.partitions
    # Tasks of Spark's run beside the partitions, where the driver does not reach these itself.
    tokens = residency.tokens or context.parallelize(range(number), number)
    vrdd = VRDD(tokens.mapPartitionsWithIndex(NoRecords(attached.name)),
                AttachPublication(attached, details.place == "host"), None)
    vrdd._residency, vrdd._level, vrdd.is_cached = residency, StorageLevel.MEMORY_ONLY, True
    vrdd._partitions, vrdd._named = number, attached.name
    return vrdd
