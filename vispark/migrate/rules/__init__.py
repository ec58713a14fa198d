"""Verdicts on a program's operations and functions, by rules and by the translator.

Place 2 of 13 in ``vispark.migrate``; run by: driver, command.
"""
