"""The results of benchmarks that the repository keeps: quick, as a figure may be added without a change to code."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results import read

RESULTS = sorted((Path(__file__).resolve().parents[2] / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_kept_results_can_be_read(path):
    contents, groups = read(path)
    assert {"machine", "commit", "command", "scale"} <= contents.keys()
    assert groups
    for group in groups:
        # Jobs of seconds, and whole programs, are sampled as often as the group says, or less where a note of theirs
        # tells why; all else less than 7 times where one of the file does.
        fewest = min(7, group.parameters.get("samples", 7)) if "samples" in contents.get("note", "") else 7
        jobs, least = group.parameters.get("samples_of_jobs", 7), group.parameters.get("whole", fewest)
        assert all(len(series.samples) >= (min(jobs, least) if series.name.startswith("Spark") else least)
                   or "fewer_samples" in series.notes for series in group.series), group.name
