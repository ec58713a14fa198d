"""Comparison of two runs of a job: their times, loops and settings beside each other."""

from __future__ import annotations

from typing import Any

from vispark.migrate.figure_texts import ratio_text, seconds_text


def compared(first: dict[str, Any], second: dict[str, Any], shows_ratios: bool) -> list[dict[str, str]]:
    """Return the rows of a table of two runs.

    Parameters
    ----------
    first, second : dict
        Runs as :meth:`~vispark.migrate.store.history.History.whole_job` gives them.
    shows_ratios : bool
        Whether the job was validated, so that speed-ups may be said.

    Examples
    --------
    >>> run = {"state": "done", "seconds": 4.0, "cluster": "", "conf": {}, "loops": []}
    >>> compared(run, {**run, "seconds": 2.0, "conf": {"k": 1}}, True)[1:]
    [{'name': 'seconds', 'first': '4 s', 'second': '2 s', 'ratio': 'x2'}, {'name': 'k', 'first': '', 'second': '1', \
'ratio': ''}]
    """
    def timed(name: str, one: float | None, two: float | None) -> dict[str, str]:
        ratio = ratio_text(one / two) if shows_ratios and one and two else ""
        return {"name": name, "first": seconds_text(one), "second": seconds_text(two), "ratio": ratio}

    def said(name: str, one: object, two: object) -> dict[str, str]:
        return {"name": name, "first": str(one), "second": str(two), "ratio": ""}

    rows = [said("state", first["state"], second["state"]), timed("seconds", first["seconds"], second["seconds"])]
    if first["cluster"] or second["cluster"]:
        rows.append(said("cluster", first["cluster"], second["cluster"]))
    for number, (one, two) in enumerate(zip(first["loops"], second["loops"], strict=False), 1):
        loop = f"loop {number}" if len(first["loops"]) > 1 else "loop"
        rows += [said(f"{loop}: line", f"{one['file']}:{one['line']}", f"{two['file']}:{two['line']}"),
                 said(f"{loop}: passes", one["passes"], two["passes"]),
                 timed(f"{loop}: a pass, median", one["median"], two["median"]),
                 timed(f"{loop}: a pass, lower quartile", one["quartile1"], two["quartile1"]),
                 timed(f"{loop}: a pass, upper quartile", one["quartile3"], two["quartile3"])]
    spent = [run["conf"].get("profile", {}) for run in (first, second)]
    # What has a break-down had nothing of the kinds that are not in it.
    rows += [timed(f"time: {kind}", *(each.get(kind, 0.0 if each else None) for each in spent)) for kind in sorted(
        spent[0].keys() | spent[1].keys(), key=lambda kind: -max(each.get(kind, 0.0) for each in spent))]
    names = sorted((first["conf"].keys() | second["conf"].keys()) - {"profile", "lines", "plans"})
    rows += [said(name, first["conf"].get(name, ""), second["conf"].get(name, "")) for name in names
             if first["conf"].get(name) != second["conf"].get(name)]
    return rows
