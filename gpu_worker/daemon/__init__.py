"""The node's daemon: sessions, device processes, snapshots kept; it loads neither CUDA, MPI nor NumPy."""
