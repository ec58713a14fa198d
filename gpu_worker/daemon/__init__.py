"""Daemon of a node: sessions, device processes, snapshots; it loads neither CUDA, MPI nor NumPy.

Place 8 of 9 in the order of the data; run by: daemon.
"""
