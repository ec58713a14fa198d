"""Figures from kept results: time by way, by iterations, by size and by GPUs, and what it goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.measure import Series
from benchmarks.regression import FLOOR
from benchmarks.results import Group, duration, read
from gpu_worker.protocol.extras import install
from vispark.runtime.profiling.profiler import KINDS

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError:
    matplotlib = None

#: Groups whose cases are ways to do one iteration or step, by how their names begin.
_PROGRAMS = ("regression", "K-means", "heat", "Navier-Stokes")

#: What names begin with, and the colour; the first that fits.
_FAMILIES = (("vispark", "#1b6ca8"), ("Spark", "#c8702a"), ("bare", "#4b4b4b"), ("CUDA", "#4b4b4b"), ("", "#6a9a5b"))
_KIND_COLOURS = dict(zip(KINDS, (
    "#8c6bb1", "#4393c3", "#92c5de", "#bdbdbd", "#1a9850", "#a6d96a", "#f4a6b8", "#c51b7d", "#543005", "#bf812d",
    "#fee08b", "#e08214", "#d9d9d9"), strict=True))
_MARKERS = "osD^vP*X<>"

_STYLE = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9,
          "figure.constrained_layout.use": True, "svg.hashsalt": "vispark", "svg.fonttype": "none"}


@dataclass(frozen=True)
class Results:
    """One run's results: its file's name, the commit, how many GPUs it had to use, what was noted, and its groups."""

    name: str
    commit: str
    gpus: int
    note: str
    groups: list[Group]


def draw(paths: Sequence[Path], directory: Path, format: str) -> list[Path]:
    """Write a figure of each kind that the results have data for; files ``KIND.format``.

    Raises
    ------
    RuntimeError
        If matplotlib is not installed.
    """
    if matplotlib is None:
        raise RuntimeError(f"plots need matplotlib: {install('examples')}")
    runs = [results(path) for path in paths]
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(_STYLE):
        for kind, make in FIGURES.items():
            figure = make(runs)
            if figure is not None:
                path = directory / f"{kind}.{format}"
                figure.savefig(path, dpi=130, metadata={"Date": None} if format == "svg" else None)
                written.append(path)
    return written


def results(path: Path) -> Results:
    """Read a kept run."""
    document, groups = read(path)
    count = document.get("gpus_used", len(document["machine"]["gpus"][:1]))
    return Results(path.name, document.get("commit") or "", count, document.get("note", ""), groups)


def _colour(name: str) -> str:
    return next(colour for begin, colour in _FAMILIES if name.startswith(begin))


def _groups(results: Iterable[Results]) -> Iterator[Group]:
    return (group for each in results for group in each.groups)


# -- time by way ------------------------------------------------------------------------------------------------------

def ways(results: Sequence[Results]) -> Figure | None:
    """Draw bars of an iteration's median, a line from the first to the third quartile on each; a panel a group.

    The dashed line is the floor: a copy within the device of as many bytes as the iteration must move.
    """
    groups = [(group, each.gpus) for each in results for group in each.groups
              if group.name.startswith(_PROGRAMS) and len(group.series) > 1]
    if not groups:
        return None
    figure = Figure(figsize=(7.5, sum(0.5 + 0.19 * len(group.series) for group, _ in groups)))
    panels = figure.subplots(len(groups), 1, squeeze=False,
                             gridspec_kw={"height_ratios": [2 + len(group.series) for group, _ in groups]})[:, 0]
    for panel, (group, gpus) in zip(panels, groups, strict=True):
        _bars(panel, group)
        panel.set_title(group.name + (f", {gpus} GPUs (the bare loops, JAX and CuPy: one)" if gpus > 1 else ""),
                        loc="left")
    panels[-1].set_xlabel("seconds an iteration")
    return figure


def _bars(panel: Axes, group: Group) -> None:
    copies = [each for each in group.series if each.name == FLOOR]
    series = sorted((each for each in group.series if each not in copies), key=lambda each: each.median)
    medians = [each.median for each in series]
    around = [[each.median - each.quantile(0.25) for each in series],
              [each.quantile(0.75) - each.median for each in series]]
    panel.barh([each.name for each in series], medians, color=[_colour(each.name) for each in series], xerr=around,
               error_kw={"lw": 0.8, "ecolor": "black"}, height=0.75)
    panel.set_xscale("log")
    floor = [group.parameters["bytes"] / copy.rate for copy in copies if "bytes" in group.parameters]
    for seconds in floor:
        panel.axvline(seconds, color="#9a9a9a", ls="--", lw=1)
    panel.set_xlim(min(medians + floor) / 2, max(medians) * 6)
    panel.invert_yaxis()
    for place, way in enumerate(series):
        panel.text(way.quantile(0.75) * 1.1, place, duration(way.median), va="center", fontsize=7)


# -- whole programs ---------------------------------------------------------------------------------------------------

def _whole(results: Iterable[Results]) -> dict[str, list[Group]]:
    """Return groups of whole programs by program, in the order of their iterations."""
    programs: dict[str, list[Group]] = {}
    for group in _groups(results):
        if "program" in group.parameters:
            programs.setdefault(group.parameters["program"], []).append(group)
    return {program: sorted(groups, key=lambda group: group.parameters["iterations"])
            for program, groups in programs.items()}


def breakdown(results: Sequence[Results]) -> Figure | None:
    """Draw the parts that whole programs spend their time on: a bar a way, of the most iterations that most ways were
    run with.
    """
    groups = [max(groups, key=lambda group: (len(_with_parts(group)), group.parameters["iterations"]))
              for groups in _whole(results).values()]
    if not groups:
        return None
    figure = Figure(figsize=(7.5, 0.8 + sum(0.6 + 0.3 * len(_with_parts(group)) for group in groups)))
    panels = figure.subplots(len(groups), 1, squeeze=False,
                             gridspec_kw={"height_ratios": [2 + len(_with_parts(group)) for group in groups]})[:, 0]
    for panel, group in zip(panels, groups, strict=True):
        _stacks(panel, group)
    handles = [matplotlib.patches.Patch(color=colour, label=kind) for kind, colour in _KIND_COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) // 2, frameon=False)
    return figure


def _with_parts(group: Group) -> list[Series]:
    return [series for series in group.series if "parts" in series.notes]


def _stacks(panel: Axes, group: Group) -> None:
    for series in _with_parts(group):
        parts: Any = series.notes["parts"]
        left = 0.0
        for kind in KINDS:
            seconds = median(parts.get(kind, [0.0]))
            panel.barh(series.name, seconds, left=left, color=_KIND_COLOURS[kind], height=0.7)
            left += seconds
        panel.text(left, series.name, f" {duration(left)}", va="center", fontsize=7)
    panel.invert_yaxis()
    panel.margins(x=0.15)
    panel.set_title(group.name.removeprefix("whole program: "), loc="left")
    panel.set_xlabel("seconds")


def iterations(results: Sequence[Results]) -> Figure | None:
    """Draw the seconds of whole programs by their iterations, a line a way."""
    programs = {program: groups for program, groups in _whole(results).items() if len(groups) > 1}
    lines = {program: _lines((group.parameters["iterations"], group) for group in groups)
             for program, groups in programs.items()}
    return _panels(lines, "iterations", "seconds, the whole program") if lines else None


# -- time by size and by GPUs -----------------------------------------------------------------------------------------

def sizes(results: Sequence[Results]) -> Figure | None:
    """Draw an iteration's median by the bytes of the data, for programs that one run had at several sizes; a line a
    way.
    """
    lines = {}
    for run in results:
        sized: dict[str, list[tuple[float, Group]]] = {}
        for group in run.groups:
            if group.name.startswith(_PROGRAMS) and "bytes" in group.parameters:
                number = f", K = {group.parameters['centers']}" if "centers" in group.parameters else ""
                sized.setdefault(group.name.partition(",")[0] + number, []).append(
                    (group.parameters["bytes"] / 1e9, group))
        lines |= {title: _lines(sorted(groups, key=lambda pair: pair[0])) for title, groups in sized.items()
                  if len({size for size, _ in groups}) > 1}
    return _panels(lines, "GB of data", "seconds an iteration") if lines else None


def scaling(results: Sequence[Results]) -> dict[str, dict[int, float]]:
    """Return the seconds by the number of GPUs, of what was measured on several: from the driver, and loops in one
    process.

    Raises
    ------
    ValueError
        If two files have a case on the same number of GPUs: of which run it is to be taken, is not known.
    """
    times: dict[str, dict[int, float]] = {}
    files: dict[tuple[str, int], str] = {}

    def took(name: str, count: int, series: Series, file: str) -> None:
        other = files.setdefault((name, count), file)
        if other != file:
            raise ValueError(f"{name} is in {other} and in {file} with the same number of GPUs; leave one of them out")
        times.setdefault(name, {}).setdefault(count, series.median)

    for run in results:
        for group in run.groups:
            for series in group.series:
                if group.name.startswith(_PROGRAMS) and series.name.startswith("vispark"):
                    took(f"{group.name}: {series.name}", run.gpus, series, run.name)
                elif group.name.startswith("exchanges of") and series.name.startswith("the loop, "):
                    name = f"{group.name.removeprefix('exchanges of ')}: in one process"
                    took(name, int(series.name.split()[2]), series, run.name)
    return {name: dict(sorted(by.items())) for name, by in times.items() if len(by) > 1}


def scaling_table(results: Sequence[Results]) -> Table:
    """Return a table of those seconds, and of how many times as fast that is as on the fewest GPUs."""
    times = scaling(results)
    counts = sorted({count for by in times.values() for count in by})
    shown = Table("program", *(f"{count} GPU{'s' if count > 1 else ''}" for count in counts))
    for name, by in times.items():
        first = next(iter(by.values()))
        shown.add_row(name, *(f"{duration(by[count])}, {first / by[count]:.2f} times" if count in by else ""
                              for count in counts))
    return shown


def gpus(results: Sequence[Results]) -> Figure | None:
    """Draw the number of times as fast that vispark is on several GPUs as on the fewest that were measured."""
    times = scaling(results)
    if not times:
        return None
    figure = Figure(figsize=(5, 3.6))
    panel = figure.subplots()
    counts = sorted({count for by in times.values() for count in by})
    panel.plot(counts, [count / counts[0] for count in counts], color="#9a9a9a", ls="--", label="as many times")
    for marker, (name, by) in zip(_MARKERS, times.items(), strict=False):
        first = next(iter(by))
        panel.plot(list(by), [by[first] / seconds * first / counts[0] for seconds in by.values()], marker=marker,
                   label=name)
    panel.set_xticks(counts)
    panel.set_xlabel("GPUs")
    panel.set_ylabel("times as fast")
    panel.legend(frameon=False, fontsize=6)
    return figure


def _lines(groups: Iterable[tuple[float, Group]]) -> dict[str, tuple[list[float], list[float]]]:
    """Return the places and the medians of each way that is at several places."""
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for place, group in groups:
        for series in group.series:
            if series.name != FLOOR and not series.name.endswith("vispark.profile()"):
                places, medians = lines.setdefault(series.name, ([], []))
                places.append(place)
                medians.append(series.median)
    return {name: line for name, line in lines.items() if len(line[0]) > 1}


def _panels(lines: dict[str, dict[str, tuple[list[float], list[float]]]], across: str, up: str) -> Figure:
    figure = Figure(figsize=(3.7 * max(2, len(lines)), 4.2))
    panels = figure.subplots(1, len(lines), squeeze=False)[0]
    for panel, (title, ways) in zip(panels, lines.items(), strict=True):
        for number, (name, (places, medians)) in enumerate(ways.items()):
            panel.plot(places, medians, marker=_MARKERS[number % len(_MARKERS)], ms=4, lw=1, color=_colour(name),
                       label=name)
        panel.set_xscale("log")
        panel.set_yscale("log")
        ticks = sorted({place for places, _ in ways.values() for place in places})
        panel.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
        panel.set_xticks([], minor=True)
        panel.set_title(title, loc="left")
        panel.set_xlabel(across)
        panel.legend(frameon=False, fontsize=6, loc="upper left", bbox_to_anchor=(0, -0.2))
    panels[0].set_ylabel(up)
    return figure


#: By the name of the file.
FIGURES: dict[str, Callable[[Sequence[Results]], Any]] = {
    "ways": ways, "breakdown": breakdown, "iterations": iterations, "sizes": sizes, "gpus": gpus}
