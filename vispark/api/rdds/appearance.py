"""Display of a VRDD at a prompt or in a notebook: its content and places, without computing anything."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from gpu_worker.protocol.messages import DISK_TIERS, TIERS
from vispark._utils import displays
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.partition_schema import PartitionSchema
from vispark.data.records.summary import size, summary
from vispark.errors import VisparkError
from vispark.plan import ops
from vispark.plan.lower.grid import lowering
from vispark.plan.lower.stages import FETCH
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.session import Session

#: A plan of at most so many operations is looked at to say what its records will be.
_MOST = 64


def text(vrdd: RecordedRDD) -> str:
    """Return the facts on one line, for ``repr``."""
    return _line(f"VRDD[{vrdd._shown()}]", _facts(vrdd))


def html(vrdd: RecordedRDD) -> str:
    """Return the display text as an HTML table, which notebooks show."""
    return displays.table(f"VRDD[{vrdd._shown()}]", _facts(vrdd))


def mimebundle(vrdd: RecordedRDD, include: Container[str] | None = None,
               exclude: Container[str] | None = None) -> dict[str, Any]:
    """Return the display text and the same as an HTML table; no job is run."""
    title, facts = f"VRDD[{vrdd._shown()}]", _facts(vrdd)
    return displays.bundle(_line(title, facts), displays.table(title, facts), include, exclude)


def _facts(vrdd: RecordedRDD) -> list[tuple[str, str]]:
    """Return the displayed facts of the VRDD, as (label, text): records, partitions and place."""
    nearest: RecordedRDD | None = vrdd
    while nearest is not None and nearest._residency is None:
        nearest = nearest._before
    residency = None if nearest is None else nearest._residency
    contents = _derived_schemas(vrdd, residency)
    held = "records not known before the first action" if contents is None else summary(contents)
    return [("records", held), ("partitions", _partition_words(vrdd)),
            ("place", _place_words(vrdd, residency, nearest is vrdd))]


def _partition_words(vrdd: RecordedRDD) -> str:
    try:
        number = vrdd.getNumPartitions()
    except (AssertionError, AttributeError, TypeError):     # PySpark's, of a context that was stopped
        return "of a SparkContext that was stopped"
    return f"{number} partition" + "s" * (number != 1)


def _derived_schemas(vrdd: RecordedRDD, residency: Residency | None) -> list[PartitionSchema] | None:
    """Return the schemas of the partitions, if they follow from those of cached partitions; None if not."""
    if residency is None or vrdd.ctx._jsc is None or len(residency.contents) < vrdd.getNumPartitions():
        return None
    contents = dict(residency.contents)
    chain = vrdd._recent()
    if residency is vrdd._residency:
        return list(contents.values())
    if len(chain) > _MOST:
        return None
    try:
        work = lowering(chain, residency.cached, FETCH, contents.values(),
                        Session.of(vrdd.ctx).workers.shared_limit)
        for partition, content in contents.items():
            work.add(partition, content)
        return list(work.results().values())
    except VisparkError:        # told by the action
        return None


def _place_words(vrdd: RecordedRDD, residency: Residency | None, is_own: bool) -> str:
    if residency is None:
        publication = vrdd._first._op.publication
        if publication is not None:
            return f"let go of: attach the publication {publication.name!r} again"
        return "lazy: computed by each action, from the RDD that was sent"
    if vrdd.ctx._jsc is None:
        return "gone with the SparkContext that was stopped"
    chain = vrdd._recent()
    place = ops.place_of(chain[:max(number for number, node in enumerate(chain) if node.cached) + 1])
    device = Session.of(vrdd.ctx).options.device
    where = "host memory" if place == "host" else "the device" + (f" ({device})" if device != "auto" else "")
    where += {TIERS: ", else in host memory", DISK_TIERS: ", else in host memory and files"}.get(place, "")
    placed = len(residency.places)
    if not is_own:
        return f"lazy: computed by each action, from VRDD {residency.cached}, which is kept " + \
            f"{'in' if place == 'host' else 'on'} {where}"
    prefix = "in" if place == "host" else "on"
    if not placed:
        return f"to be cached {prefix} {where}, by the first action"
    nbytes = sum(residency.contents[each].nbytes for each in list(residency.places) if each in residency.contents)
    partly = "" if placed == len(residency.contents) else f"{placed} of {len(residency.contents)} partitions "
    return f"{partly}cached {prefix} {where}, {size(nbytes)}"


def _line(title: str, facts: list[tuple[str, str]]) -> str:
    """Return the facts on one line."""
    return f"{title}: " + "; ".join(text for _, text in facts)
