"""Recorded operations, in a file each or with those of their kind; see :mod:`vispark.plan.operation`."""
