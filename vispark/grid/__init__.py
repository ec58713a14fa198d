"""Grids: cells in 1 to 3 dimensions, cut into blocks whose halos are exchanged among the workers.

``grid`` is what users make, ``key`` what travels with its blocks, ``description`` both in numbers; ``boundary`` reads
what lies outside. ``scattering`` and ``gathering`` are the two ways, ``files`` beside them. ``recorded`` and
``operations`` are what a VRDD of blocks can do, ``loop`` runs long loops, ``lowering`` makes protocol steps of it all.
"""
