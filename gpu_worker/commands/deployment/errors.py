"""Errors of clusters."""

from __future__ import annotations

from gpu_worker.protocol.errors import VisparkError


class ClusterError(VisparkError, RuntimeError):
    """A cluster that cannot be created, found, connected to or deleted."""


class ClusterRefused(ClusterError):
    """A request that was refused, so that nothing has changed; as the deletion of what others created."""
