"""Pages of the store's jobs, as a file and served to a browser.

Place 12 of 13 in ``vispark.migrate``; run by: command.
"""
