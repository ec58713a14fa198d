"""Qualification of a program: verdicts on its loops, by its source, an event log or a recording.

Place 6 of 13 in ``vispark.migrate``; run by: command.
"""
