"""Recorded beginning of a chain with records that were exchanged by their keys."""

from __future__ import annotations

from dataclasses import dataclass

from vispark.data.records import RecordLayout
from vispark.plan.operation import RecordedOperation


@dataclass(frozen=True)
class Shuffled(RecordedOperation):
    """Operation that begins a chain with what workers, or Spark in their stead, made of other records by their keys.

    Attributes
    ----------
    label : str
        What was done, and of what.
    layout : RecordLayout
        What records come out.
    """

    label: str
    layout: RecordLayout

    place = "host"
    begins = True

    def __str__(self) -> str:
        return self.label
