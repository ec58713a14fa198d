"""Search for better settings of a ported program, and its run under one of them.

Place 9 of 13 in ``vispark.migrate``; run by: driver, task, command.
"""
