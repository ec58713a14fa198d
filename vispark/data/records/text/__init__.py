"""Text files of numbers: which files and bytes a task reads (``splits``), bytes to arrays (``parsing``), the RDD."""

from vispark.data.records.text.reader import read_text

__all__ = ["read_text"]
