"""Publishing of a VRDD for other applications of the user."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from gpu_worker.protocol.publications import MAX_LEASE, MAX_NAME, PublicationDetails
from vispark.api.rdds.recorded_rdd import Recorded
from vispark.data.grid.spec import FUNCTION
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import PlanError
from vispark.plan import ops
from vispark.runtime.driver import publications
from vispark.runtime.driver.retry import until_done
from vispark.runtime.driver.session import Session

#: Units of a lease, in seconds.
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def publish(vrdd: Recorded, name: str, lease: str | float = "1h", *, replace: bool = False,
            secret: str | None = None) -> Recorded:
    """Publish the records under a name, for other applications of the user to :func:`attach`.

    It is computed now, if it is not held yet, and kept as :meth:`cache` does. What is published never changes; of
    the blocks of a grid it is a copy, beside that with which this application goes on. It stays where it is for as
    long as this application, or one that has attached it, is there, and for the ``lease`` after that,
    also if the application is killed or lets go of the VRDD.

    Parameters
    ----------
    name : str
        1 to 128 printable characters; on each node of the cluster there is one publication of a name.
    lease : str or number
        Seconds, or a number with one of the units ``s``, ``m``, ``h`` and ``d``.
    replace : bool
        Whether to take the place of another publication of that name; who has attached that one keeps it.
    secret : str, optional
        What an application has to know to attach it; left out, any application of the user may.

    Returns
    -------
    VRDD
        This one.

    Raises
    ------
    PublicationExists
        If another publication has the name, and ``replace`` is not set.
    PlanError
        If name or lease are not as above, there are no records, their keys are pickled, or the records are blocks
        of a grid whose boundary is a function: no other application may unpickle that. Publish ``.values()`` then.
    DeviceUnavailable
        If the device has no memory that other processes can map.

    See Also
    --------
    attach, publications

    Examples
    --------
    >>> points = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU").publish("points", lease="10m")
    >>> attach(sc, "points").vmap(lambda x: 2 * x).sum()
    12.0
    """
    session = Session.of(vrdd.ctx)
    details = PublicationDetails(checked_name(name), "", f"{vrdd.ctx.appName} ({vrdd.ctx.applicationId})",
                                 vrdd.name() or str(vrdd._op), "", 0, seconds_of(lease), digest_of(secret))
    vrdd.cache()

    def once() -> None:
        source, contents = vrdd, vrdd._contents()
        shape = _shape_of_grid(contents.values())
        if shape:       # steps go on in the memory that its blocks share
            source = vrdd._then(ops.Contiguous(shape)).cache()
            contents = source._contents()
        residency = source._residency
        assert residency is not None
        place = ops.place_of(source._recent())
        publications.publish(session, residency, details, place, len(contents), replaces=replace)

    until_done(session, once)
    return vrdd


def checked_name(name: str) -> str:
    """Return a publication's name. Raises PlanError if it can be none."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise PlanError(f"a publication's name has 1 to {MAX_NAME} printable characters, and is not {name!r:.80}")
    return name


def digest_of(secret: str | None) -> bytes:
    """Return the digest of a publication's secret that workers compare; empty if it has none."""
    return b"" if secret is None else hashlib.sha256(b"vispark publication: " + secret.encode()).digest()


def seconds_of(lease: str | float) -> float:
    """Return a lease in seconds.

    Raises
    ------
    PlanError
        If it is none.

    Examples
    --------
    >>> seconds_of("90s"), seconds_of("1.5h"), seconds_of(30)
    (90.0, 5400.0, 30.0)
    """
    text = str(lease).strip()
    unit = _UNITS.get(text[-1:], 0.0)
    try:
        seconds = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_LEASE:
        raise PlanError("a lease is a number of seconds above 0, or text such as \"30s\", \"10m\", \"1h\" or \"7d\", "
                        f"up to {MAX_LEASE / _UNITS['d']:g} days, and not {lease!r}")
    return seconds


def _shape_of_grid(contents: Iterable[PartitionSchema]) -> tuple[int, ...]:
    """Return the cells of the grid that is to be published; nothing, if it is none.

    Raises
    ------
    PlanError
        If there are no partitions, or the grid has functions for its boundary.
    """
    schemas = list(contents)
    if not schemas:
        raise PlanError("it has no partitions, and there is nothing to be published")
    grid = next((content.layout.grid for content in schemas if content.layout.grid is not None), None)
    if grid is None:
        return ()
    if any(edge.rule == FUNCTION for each in grid.edges for edge in each.edges):
        raise PlanError("its grid has a function for its boundary, which no other application may load: publish it on "
                        "a Grid whose boundary is periodic, mirrored or a number, or .values()")
    return grid.shape
