"""Grids: cells in 1 to 3 dimensions, cut into blocks whose halos are exchanged among the workers.

``spec`` is a grid's shape, splits, halo and boundary, ``key`` what travels with its blocks; ``boundary`` reads what is
outside, ``values`` what a grid begins with. ``files`` opens what is stored as NumPy, Zarr or HDF5 files, each in a
module of its own. What users call is :mod:`vispark.api.grids.grid`.
"""
