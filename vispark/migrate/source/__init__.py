"""Text of a program, by its syntax tree: operations of RDDs, loops, functions, statements; nothing of it runs.

Place 1 of 13 in ``vispark.migrate``; run by: driver, command.
"""
