"""Counters of a device process, for reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counters that only rise: of plans that were begun, failed, or sent in full, and of bytes of payloads."""

    begun: int = 0
    failed: int = 0
    lowered: int = 0
    received: int = 0
    returned: int = 0
