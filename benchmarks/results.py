"""The document that a run writes, and the table that it prints. README.md describes the document."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.measure import Series

SCHEMA = 1


@dataclass
class Group:
    """Figures of one benchmark.

    Attributes
    ----------
    name : str
        The benchmark, with the size where it runs at several.
    parameters : dict
        Everything that was chosen: sizes, partitions, samples.
    series : list of Series
        In the order of the table.
    checks : dict
        What was found equal, and how far it was off.
    skipped : dict of str to str
        Cases that did not run, and why.
    tail : bool
        Whether the table shows the 99th percentile: where there are samples enough for one.
    """

    name: str
    parameters: dict[str, Any]
    series: list[Series] = field(default_factory=list)
    checks: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    tail: bool = False

    def ratios(self) -> Iterable[tuple[Series, str, float]]:
        """Yield the time of each series over that of those it is held against; a byte, where both move a number of
        them.
        """
        known = {series.name: series for series in self.series}
        for series in self.series:
            for name in series.against:
                if name in known:
                    yield series, name, _ratio(series, known[name])


def _ratio(series: Series, other: Series) -> float:
    share = (series.nbytes or 1) / (other.nbytes or 1) if series.nbytes and other.nbytes else 1
    return series.median / other.median / share


def document(groups: Iterable[Group], **about: Any) -> dict[str, Any]:
    """Return the document; ``about`` are its other entries, such as machine and command."""
    return {"schema": SCHEMA, **about, "benchmarks": [_group(group) for group in groups]}


def _group(group: Group) -> dict[str, Any]:
    return {"name": group.name, "parameters": group.parameters,
            "series": [_series(series, group.tail) for series in group.series],
            "ratios": [{"of": series.name, "to": name, "value": value} for series, name, value in group.ratios()],
            "checks": group.checks, "skipped": group.skipped}


def _series(series: Series, tail: bool) -> dict[str, Any]:
    entry = {"name": series.name, "unit": "s", "samples": list(series.samples), "repeats": series.repeats,
             "median": series.median, "min": series.least, "iqr": series.spread, "bytes": series.nbytes,
             "bytes_per_second": series.rate if series.nbytes else None, "against": list(series.against),
             "notes": series.notes}
    return entry | {"p99": series.quantile(0.99)} if tail else entry


def read(path: Path) -> tuple[dict[str, Any], list[Group]]:
    """Read a document that a run wrote, and its groups.

    Raises
    ------
    ValueError
        If it is of another schema, or a figure in it is not what its samples give.
    """
    content = json.loads(path.read_text())
    if content.get("schema") != SCHEMA:
        raise ValueError(f"{path.name} is of schema {content.get('schema')}, not {SCHEMA}")
    groups = [_read_group(each) for each in content["benchmarks"]]
    for group, entry in zip(groups, content["benchmarks"], strict=True):
        if _group(group) != entry:
            raise ValueError(f"{path.name}: the figures of {group.name} are not those of its samples")
    return content, groups


def _read_group(entry: dict[str, Any]) -> Group:
    series = [Series(each["name"], tuple(each["samples"]), each["repeats"], each["bytes"], tuple(each["against"]),
                     each["notes"]) for each in entry["series"]]
    return Group(entry["name"], entry["parameters"], series, entry["checks"], entry["skipped"],
                 any("p99" in each for each in entry["series"]))


def table(groups: Iterable[Group], title: str) -> Table:
    """Return one table of all groups."""
    shown = Table("benchmark", "case", "median", "min", "IQR", "p99", "rate", "time, in times that of", title=title)
    for column in shown.columns[2:7]:
        column.justify = "right"
    for group in groups:
        ratios: dict[str, list[str]] = {}
        for series, name, value in group.ratios():
            ratios.setdefault(series.name, []).append(f"{value:.3g} × {name}")
        for index, series in enumerate(group.series):
            shown.add_row(group.name if index == 0 else "", series.name, duration(series.median),
                          duration(series.least), duration(series.spread),
                          duration(series.quantile(0.99)) if group.tail else "",
                          f"{series.rate / 1e9:.2f} GB/s" if series.nbytes else "",
                          "\n".join([*ratios.get(series.name, []), *_remarks(series)]))
        for name, why in group.skipped.items():
            shown.add_row("", name, "not run", "", "", "", "", why)
        shown.add_section()
    return shown


def comparison(before: Iterable[Group], after: Iterable[Group], title: str) -> Table:
    """Return one table of the ratios that two runs have in common, side by side."""
    shown = Table("benchmark", "case", "in times that of", "before", "after", "after / before", title=title)
    for column in shown.columns[3:]:
        column.justify = "right"
    known = {(group.name, series.name, name): value for group in before for series, name, value in group.ratios()}
    for group in after:
        for series, name, value in group.ratios():
            earlier = known.get((group.name, series.name, name))
            if earlier is not None:
                shown.add_row(group.name, series.name, name, f"{earlier:.3g}", f"{value:.3g}", f"{value / earlier:.2f}")
    return shown


def _remarks(series: Series) -> list[str]:
    """Return the figures that were worked out beside the time, and what that was spent on: parts of a hundredth and
    more.
    """
    remarks = [f"{name.replace('_', ' ')}: {value:.3g}" for name, value in series.notes.items()
               if isinstance(value, float)]
    parts: Any = series.notes.get("parts", {})
    spent = {kind: statistics.median(samples) for kind, samples in parts.items()}
    named = [f"{kind} {duration(seconds)}" for kind, seconds in spent.items() if seconds > sum(spent.values()) / 100]
    return [*remarks, *([", ".join(named)] if named else [])]


def duration(seconds: float) -> str:
    """Return seconds in the unit that fits.

    >>> duration(0.00123), duration(2), duration(4.5e-6)
    ('1.23 ms', '2 s', '4.5 µs')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
