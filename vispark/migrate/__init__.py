"""Migration of PySpark programs onto the GPU: what qualifies, a port, and proofs of both; the command ``vispark``.

In the order in which a program passes: ``source`` reads its text, ``rules`` judges operations, ``capture`` has what a
run leaves, ``predict`` the time of a pass, ``record`` runs it and notes what it does; ``qualify``, ``port``,
``validate`` and ``tune`` are steps of its migration, ``store`` and ``report`` keep and show what comes of them, on
``clusters`` it runs, ``commands`` are what users call. ``import vispark`` imports nothing of this package.

Place 8 of 8 in the order of the data; run by: driver, task, command.
"""
