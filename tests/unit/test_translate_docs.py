"""docs/guide/translator.md holds the tables that the cases make. ``VISPARK_UPDATE_GOLDEN=1`` writes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.golden.language import tables

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "guide" / "translator.md"
_GENERATED = re.compile(r"(<!-- generated from tests/golden -->\n).*?(<!-- end -->)", re.S)


def test_the_language_table_is_that_of_the_cases():
    text = DOCUMENT.read_text()
    wanted = _GENERATED.sub(lambda found: f"{found[1]}\n{tables()}\n{found[2]}", text)
    if os.environ.get("VISPARK_UPDATE_GOLDEN") == "1":
        DOCUMENT.write_text(wanted)
        text = wanted
    assert _GENERATED.search(text)
    assert text == wanted, "docs/guide/translator.md differs; VISPARK_UPDATE_GOLDEN=1 writes it anew"
