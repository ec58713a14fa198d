"""Clients of a session's device process: connections by Unix socket and by TCP."""
