"""Errors of clusters that are an answer."""

from __future__ import annotations

from gpu_worker.deployment.errors import ClusterError

__all__ = ["ClusterError", "ClusterRefused"]


class ClusterRefused(ClusterError):
    """A request that was refused, so that nothing has changed; as the deletion of what others created."""
