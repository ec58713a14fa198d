"""Options are read in Spark's units, and what is wrong says what is taken."""

from __future__ import annotations

import pytest

from vispark.errors import OptionError
from vispark.options import Options


@pytest.mark.parametrize(("text", "seconds"), [("6", 6), ("0.5", 0.5), ("6s", 6), ("500ms", 0.5), ("10m", 600),
                                               ("10min", 600), (" 2H ", 7200), ("1d", 86400)])
def test_seconds(text: str, seconds: float):
    assert Options.read([("spark.vispark.deadline", text)]).deadline == pytest.approx(seconds)


@pytest.mark.parametrize(("name", "text", "words"), [
    ("deadline", "soon", "seconds, more than 0, or a number with its unit, as 500ms"), ("lease", "0", "more than 0"),
    ("lease", "nan", "seconds"), ("startTimeout", "inf", "seconds"), ("deadline", "5 weeks", "seconds"),
    ("attempts", "many", "a whole number, 0 or more"), ("attempts", "-1", "a whole number"),
    ("memory", "lots", "as 512k, 64m or 8g"), ("memory", "-1g", "bytes"), ("memory", "1.5g", "a whole number"),
    ("memory", "", "bytes"), ("snapshotShare", "half", "a number from 0")])
def test_what_is_no_such_value_says_what_is(name: str, text: str, words: str):
    with pytest.raises(OptionError, match="is not understood") as raised:
        Options.read([(f"spark.vispark.{name}", text)])
    assert words in str(raised.value) and "could not convert" not in str(raised.value)
