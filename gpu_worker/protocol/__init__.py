"""Protocol between clients and workers: errors, messages, frames and payloads. See docs/reference/protocol.md.

Place 1 of 9 in the order of the data; run by: driver, task, daemon, device process, command.
"""
