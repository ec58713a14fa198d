"""Port of a program: its loops that stay on the device are changed, and nothing else of its text.

Place 7 of 13 in ``vispark.migrate``; run by: command.
"""
