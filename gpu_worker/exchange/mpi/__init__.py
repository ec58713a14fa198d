"""MPI between the device processes of a session that spans nodes.

A session's *world* has one rank for each node: a process of its own beside the device process, with which it shares the
memory that halos travel through. mpirun starts the ranks, with the nodes' daemons as its launch agent. A rank that
dies, or whose device process does, ends its world at once and nothing else: the other device processes keep what they
hold, and a new world may follow.
"""
