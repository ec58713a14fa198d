"""Commands of ``gpu-worker``, which :mod:`gpu_worker.cli` imports when they are used.

The modules here are about this node's daemon, which ``start`` becomes; ``deployment`` is about clusters of others and
files for them, ``monitor`` about views of a daemon, in the terminal and by ``web`` in a browser.

Place 9 of 9 in the order of the data; run by: command.
"""
