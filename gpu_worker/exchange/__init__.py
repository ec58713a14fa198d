"""Worlds: device processes of a session that exchange ghost cells with each other, by one of several exchanges.

``base`` says what an exchange is, ``mpi`` and ``ucx`` each do it with one library.

Place 5 of 9 in the order of the data; run by: daemon, device process.
"""
