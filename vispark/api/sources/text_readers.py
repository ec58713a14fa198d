"""Reader of text as users call it: an error of an action of its RDD fits one screen. It does not import Arrow."""

from __future__ import annotations

from vispark.api.rdds.derived_rdd import of_brief_errors
from vispark.data.records import text

__all__ = ["read_text"]

read_text = of_brief_errors(text.read_text)
