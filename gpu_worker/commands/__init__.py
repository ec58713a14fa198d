"""Commands of ``gpu-worker`` about this node's daemon, which :mod:`gpu_worker.cli` imports when they are used."""
