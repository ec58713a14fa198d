"""Commands of ``vispark``: a module each, which is imported when its command is used.

Place 13 of 13 in ``vispark.migrate``; run by: command.
"""
