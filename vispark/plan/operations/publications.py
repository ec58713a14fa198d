"""Recorded start of a plan from a publication of another application, in place of a send."""

from __future__ import annotations

from dataclasses import dataclass

from vispark.plan.operation import AttachedPublication, RecordedOperation


@dataclass(frozen=True)
class AttachPublication(RecordedOperation):
    """Operation that maps the blocks of a publication, where they lie: in host memory, or on their device."""

    attached: AttachedPublication
    is_on_host: bool = False

    begins = True

    def __str__(self) -> str:
        return f"attach {self.attached.name!r}"

    @property
    def place(self) -> str:  # type: ignore[override]
        return "host" if self.is_on_host else "device"

    @property
    def publication(self) -> AttachedPublication:
        return self.attached
