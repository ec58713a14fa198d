"""Faults can be sown, and some of them are; ``python -m tests.property.faults`` sows all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.faults.sowing import FAST, FAULTS, ROOT, copy, run

#: Faults that the first tests find, so that few have to run.
SOME = ("a bool and a number meet", "slices begin one later", "all captures are the first")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_its_text_stands_there_once(fault):
    text = (ROOT / "vispark" / "translate" / fault.file).read_text()
    assert text.count(fault.sound) == 1
    assert fault.sound != fault.sown


def test_there_are_enough_and_each_has_a_name():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 50


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.name in SOME], ids=lambda fault: fault.name)
def test_it_is_caught(fault, tmp_path: Path):
    assert run(copy(tmp_path, fault.name), fault, tests=FAST[:2]).caught
