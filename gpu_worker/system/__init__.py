"""The operating system as processes see it: paths, peers, logs, waiting, crash records, starting a daemon.

Place 2 of 9 in the order of the data; run by: driver, task, daemon, device process, command.
"""
