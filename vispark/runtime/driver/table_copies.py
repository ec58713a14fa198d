"""Copies of tables: each worker that folded some of one holds all of it, and what functions make of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pyspark import RDD

from vispark.errors import OutOfMemory, WorkerUnavailable
from vispark.plan.ops import DatasetId, LogicalPlan
from vispark.runtime.driver.channel import LOST
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.session import Session


def find_copy(session: Session, table: Residency) -> bool:
    """Return whether a worker that is left holds a copy of a table, which is its place from then on."""
    alive, table.copies = [place for place in table.copies if session.workers.is_alive(*place)], frozenset()
    for home, _ in alive:
        with suppress(*LOST, WorkerUnavailable):
            session.discover(table, session.workers.at(home))
            table.copies |= table.processes
    return not session.missing(table, range(1))


def compute_copies(session: Session, loader: RDD[Any], chain: LogicalPlan, start: DatasetId,
                   target: Residency) -> None:
    """Have the other workers that hold a copy of a table compute what a chain makes of it, as one of them did.

    One that is lost under it, or has no room, gets the table from the driver when it needs it.
    """
    target.copies = target.processes
    for home, epoch in session.residencies[start.number].copies - target.copies:
        if session.workers.is_alive(home, epoch):
            with suppress(*LOST, OutOfMemory, WorkerUnavailable):
                session.computed_at(home, loader, chain, start)
                target.copies |= target.processes
