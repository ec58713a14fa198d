"""How a grid lies in device memory: boxes, patches, ghost cells, and which copies an exchange takes."""
