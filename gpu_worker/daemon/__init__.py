"""Daemon of a node: sessions, device processes, snapshots; it loads neither CUDA, MPI nor NumPy."""
