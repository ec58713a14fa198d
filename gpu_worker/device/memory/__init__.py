"""Memory of a device process: names, partitions, buffers, and the layout of grids."""
