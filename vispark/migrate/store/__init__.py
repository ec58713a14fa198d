"""Store of jobs: qualifications, ports, predictions, validations and traces of each program.

Place 10 of 13 in ``vispark.migrate``; run by: command.
"""
