"""Page of a job, as one HTML file without scripts and without anything from elsewhere, and the texts of its figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from vispark.migrate.extra_packages import required
from vispark.migrate.figure_texts import ratio_text, seconds_text
from vispark.migrate.store.history import NOT_PORTED
from vispark.migrate.validate.compare import DIFFERS, NOT_KNOWN
from vispark.runtime.profiling.profiler import KINDS

#: Lines of a break-down that are shown.
_MOST_LINES = 12
_TEMPLATES = Path(__file__).parent / "templates"


def is_validated(verdict: str | None) -> bool:
    """Return whether a verdict lets a job's figures be shown."""
    return verdict not in (None, DIFFERS, NOT_KNOWN)


def figures(job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the key figures of a job by its last validation; no speed-up where the results differ.

    Parameters
    ----------
    job : dict
        As :meth:`~vispark.migrate.store.history.History.whole_job` gives it.
    """
    if not job["validations"]:
        return None
    last = job["validations"][-1]
    rows: list[tuple[str, str]] = []
    cpu, gpu = last["document"].get("cpu_seconds"), last["document"].get("gpu_seconds")
    if is_validated(last["verdict"]) and cpu and gpu:
        rows.append(("whole program", f"{seconds_text(cpu)} -> {seconds_text(gpu)}, {ratio_text(cpu / gpu)}"))
    runs = {run["id"]: run for run in job["runs"]}
    if is_validated(last["verdict"]) and last["cpu"] in runs and last["gpu"] in runs:
        for one, two in zip(runs[last["cpu"]]["loops"], runs[last["gpu"]]["loops"], strict=False):
            if one["median"] and two["median"]:
                rows.append((f"a pass, line {one['line']}", f"{seconds_text(one['median'])} -> "
                             f"{seconds_text(two['median'])}, {ratio_text(one['median'] / two['median'])}"))
    return {"verdict": last["verdict"], "rows": rows}


def page(job: dict[str, Any]) -> str:
    """Return a job's page.

    Raises
    ------
    MissingPackage
        Without Jinja2: extra ``report``.
    """
    return rendered("job.html", live=False, **page_parts(job))


def rendered(template: str, **values: Any) -> str:
    """Return a template with these values.

    Raises
    ------
    MissingPackage
        Without Jinja2: extra ``report``.
    """
    jinja2 = required("jinja2", "report", "an HTML report")
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=False)
    environment.filters["seconds"] = seconds_text
    environment.filters["day"] = lambda at: time.strftime("%Y-%m-%d", time.gmtime(at))
    return str(environment.get_template(template).render(**values))


def page_parts(job: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a job's page: figures, results, predictions, diff and source with verdicts."""
    last = job["validations"][-1]["document"] if job["validations"] else None
    return {"job": job, "figures": figures(job), "diff": _diff(job["diff"]), "source": _source(job),
            "by_hand": [] if job["diff"] else [each for each in job["advice"] if each["verdict"] == "by hand"],
            "not_ported": not_ported(job),
            "predictions": [_prediction(each, job) for each in job["predictions"]], "spent": breakdowns(job),
            "validation": last and {"statements": [_statement(each) for each in last["statements"]],
                                    "notes": last.get("notes", [])}}


def not_ported(job: dict[str, Any]) -> list[str]:
    """Return the reasons why loops of a job are not ported, by its newest run; none of a job that has a port."""
    return list(job["runs"][-1]["conf"].get(NOT_PORTED, [])) if job["runs"] and not job["diff"] else []


def breakdowns(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the break-down of the time of runs: of the newest run of each kind that has one.

    Parameters
    ----------
    job : dict
        As :meth:`~vispark.migrate.store.history.History.whole_job` gives it.

    Returns
    -------
    list of dict
        ``run``, ``kind``, ``total`` in s; ``kinds`` with name, meaning, seconds and share; ``lines`` with place, text,
        seconds, share, kinds and plans, those of the most seconds.
    """
    newest = {run["kind"]: run for run in job["runs"] if run["conf"].get("profile")}
    return [_breakdown(run, job["source"].splitlines(), job["script"]) for run in newest.values()]


def _breakdown(run: dict[str, Any], source: list[str], script: str) -> dict[str, Any]:
    kinds, total = run["conf"]["profile"], sum(run["conf"]["profile"].values()) or 1.0
    lines = []
    for place, parts in run["conf"].get("lines", {}).items():
        file, _, number = place.rpartition(":")
        own = file == script and number.isdigit() and int(number) <= len(source)
        lines.append({"place": f"{Path(file).name}:{number}" if place else "", "seconds": sum(parts.values()),
                      "text": source[int(number) - 1].strip() if own else "", "share": sum(parts.values()) / total,
                      "plans": run["conf"].get("plans", {}).get(place, ""),
                      "kinds": ", ".join(sorted(parts, key=lambda kind: -parts[kind])[:3])})
    return {"run": run["id"], "kind": run["kind"], "total": total, "kinds": [
        {"name": name, "meaning": KINDS.get(name, ""), "seconds": seconds, "share": seconds / total}
        for name, seconds in sorted(kinds.items(), key=lambda item: -item[1])],
        "lines": sorted(lines, key=lambda line: -line["seconds"])[:_MOST_LINES]}


def _prediction(prediction: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """Return a prediction with the pass that the last GPU run of a validated job measured, of the same loop."""
    measured = None
    last = job["validations"][-1] if job["validations"] else None
    if last is not None and is_validated(last["verdict"]):
        runs = {run["id"]: run["loops"] for run in job["runs"]}
        pairs = zip(runs.get(last["cpu"], []), runs.get(last["gpu"], []), strict=False)
        measured = next((two["median"] for one, two in pairs if one["line"] == prediction["line"]), None)
    verdict = "not measured" if measured is None else \
        "as predicted" if prediction["low"] <= measured <= prediction["high"] else "outside of the interval"
    return {**prediction, "measured": measured, "said": verdict}


def _statement(statement: dict[str, Any]) -> dict[str, Any]:
    worst = [each["worst"] for each in statement["passes"]]
    differing = statement["first_pass_that_differs"]
    # It is the last one of those that are kept, where there are more passes than these.
    one = statement["passes"][min(differing, len(worst)) - 1] if differing else None
    nearer = f"; nearer to float64: {one['nearer_to_float64']}" if one and "nearer_to_float64" in one else ""
    why = f"pass {differing}: {one['place']}: {one['reference']} and {one['other']}{nearer}" if one else \
        next((each["why"] for each in statement["passes"] if each["verdict"] == NOT_KNOWN), "")
    return {**statement, "worst": "not finite" if None in worst else _difference(max(worst, default=0.0)),
            "noise": "not finite" if statement["noise"] is None else _difference(statement["noise"]),
            "ulps": _bins(statement), "why": why}


def _bins(statement: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the histogram of a statement: label, count and share of each bin, up to the last one that has any."""
    # What an older vispark kept has it by passes.
    counts = statement.get("ulps") or {}
    for one in [] if counts else statement["passes"]:
        counts = {label: counts.get(label, 0) + count for label, count in one.get("ulps", {}).items()}
    total = sum(counts.values())
    last = max((number for number, count in enumerate(counts.values()) if count), default=0)
    return [{"label": label, "count": count, "share": count / total}
            for number, (label, count) in enumerate(counts.items()) if number <= last] if last else []


def _difference(relative: float) -> str:
    return f"{relative:.1e}" if relative else "0"


def _diff(text: str) -> list[dict[str, str]]:
    kinds = {"+": "added", "-": "removed"}
    return [{"kind": kinds.get(line[:1], "same"), "text": line} for line in text.splitlines()]


def _source(job: dict[str, Any]) -> list[dict[str, Any]]:
    advice: dict[int, list[str]] = {}
    for row in job["advice"]:
        advised = f"{row['verdict']}: {row['why']}" if row["why"] else row["verdict"]
        if advised not in advice.setdefault(row["line"], []):
            advice[row["line"]].append(advised)
    return [{"number": number, "text": text, "advice": "; ".join(advice.get(number, []))}
            for number, text in enumerate(job["source"].splitlines(), 1)]
