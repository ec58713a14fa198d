"""Counters of a device process, for reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counters that only rise: of plans that were begun, failed, or sent in full, of bytes of payloads,
    of seconds that plans took, and of plans that found no memory."""

    begun: int = 0
    failed: int = 0
    lowered: int = 0
    received: int = 0
    returned: int = 0
    working: float = 0.0
    crowded: int = 0
