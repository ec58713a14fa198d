"""The texts that say what data looks like, how extras are installed, and what functions may call."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.protocol.extras import EXTRAS, install
from vispark import Grid, Rows
from vispark.data.records import Keyring, pack
from vispark.data.records.summary import size, summary
from vispark.runtime.executor.tasks import content_of
from vispark.translate.__main__ import listed
from vispark.translate.language import registry

ROOT = Path(__file__).parents[2]
RING = Keyring(b"k" * 32)


@pytest.mark.parametrize(("records", "text"), [
    ([1.0, 2.0], "2 records of float"),
    ([np.float32(1)], "1 record of float32"),
    ([np.ones(3, "f4")] * 1000, "1,000 records of float32[3]"),
    ([np.ones((2, 3))] * 2, "2 records of float64[2, 3]"),
    ([np.ones((2, 3)), np.ones((4, 3))], "2 records of float64[2, 3] or float64[4, 3]"),
    ([(1, 2.5)] * 3, "3 records of (key, float)"),
    ([(1, 2.5, 3)] * 3, "3 records of (int, float, int)"),
    ([{"x": np.ones(2), "n": 1}], "1 record of {x: float64[2], n: int}"),
    ([], "0 records"),
])
def test_what_records_are(records: list, text: str):
    assert summary([content_of(pack(records, seal=RING.seal))]) == text


def test_sizes():
    assert [size(each) for each in (0, 999, 2048, 5 << 20, 1000 << 20)] == \
        ["0 bytes", "999 bytes", "2 KiB", "5 MiB", "1000 MiB"]


def test_rows_and_grids_say_what_they_are():
    assert repr(Rows([np.ones((3, 2), "f4"), np.ones((1, 2), "f4")])) == \
        "Rows(4 rows of float32[2], in 2 arrays, on host)"
    assert repr(Rows([{"x": np.ones((3, 2)), "y": np.ones(3)}])) == \
        "Rows(3 rows of {x: float64[2], y: float64}, in 1 array, on host)"
    assert "read once" in repr(Rows(iter([])))
    assert repr(Grid((8, 6), halo=1, boundary=("periodic", (1, "mirrored")), fields={"u": "f4"})) == \
        "Grid((8, 6), splits=(1, 1), halo=(1, 1), boundary=('periodic', (1, 'mirrored')), fields={'u': 'float32'})"


def test_extras_that_hints_name_are_in_setup_cfg():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert set(EXTRAS) <= set(settings["options.extras_require"])
    assert all(install(extra).startswith(f"pip install '.[{extra}]'") for extra in EXTRAS)
    with pytest.raises(KeyError):
        install("gpu")


def test_hints_to_install_go_by_that_function():
    sources = [*ROOT.glob("vispark/**/*.py"), *ROOT.glob("gpu_worker/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    named = {(path.name, extra) for path in sources if path.name != "extras.py"
             for extra in re.findall(r"(?:vispark|\.)\[([a-z]+)\]'", path.read_text())}
    assert not named
    hinted = {extra for path in sources for extra in re.findall(r"install\(['\"](\w+)['\"]\)", path.read_text())}
    assert {"cuda", "mpi", "files", "text"} <= hinted <= set(EXTRAS)


def test_the_list_of_functions_lacks_none():
    """Whatever the reader takes for one of the language's functions is in the list that refusals point to."""
    known = {f"{module}.{name}".removeprefix("built in.") for module, names in listed().items() for name in names}
    assert set(registry.names()) <= known
    assert {"numpy.percentile", "numpy.bool_", "math.comb", "functools.reduce", "numpy.linalg.norm"} <= known
