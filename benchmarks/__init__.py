"""Costs of a partition's way, a request and an iteration, against what they could cost on the same machine.

    python -m benchmarks

``measure`` samples, ``results`` is the document and the table, ``machine`` says where it was; ``transport``,
``latency`` and ``regression`` are the benchmarks, ``session``, ``points``, ``tasks`` and ``bare`` what these need.
"""
