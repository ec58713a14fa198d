"""Layout of a grid in device memory: boxes, patches, ghost cells, and the copies of an exchange."""
