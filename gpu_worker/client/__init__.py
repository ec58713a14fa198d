"""Clients of a session's device process: connections by Unix socket and by TCP.

Place 3 of 9 in the order of the data; run by: driver, task, device process.
"""
