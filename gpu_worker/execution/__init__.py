"""A plan's run on devices: launches, reductions, copies, captures that are replayed."""
