"""What a device process holds: names, partitions, buffers, and how grids lie in memory."""
