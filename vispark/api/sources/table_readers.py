"""Readers of tables as users call them: an error of an action of their RDDs fits one screen."""

from __future__ import annotations

from vispark.api.rdds.derived_rdd import of_brief_errors
from vispark.data.tables import csv, dataframe, orc, parquet

__all__ = ["from_dataframe", "read_csv", "read_orc", "read_parquet"]

from_dataframe = of_brief_errors(dataframe.from_dataframe)
read_csv = of_brief_errors(csv.read_csv)
read_orc = of_brief_errors(orc.read_orc)
read_parquet = of_brief_errors(parquet.read_parquet)
