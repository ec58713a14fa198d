"""Errors of clusters."""

from __future__ import annotations

from gpu_worker.protocol.errors import VisparkError


class ClusterError(VisparkError, RuntimeError):
    """A cluster that cannot be created, found, connected to or stopped."""
