"""Execution of plans on devices: launches, reductions, copies, recordings that are replayed."""
