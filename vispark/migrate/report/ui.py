"""Pages of ``vispark report ui``: jobs, a job, two of its runs beside each other; the one place that imports Starlette
here.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_worker.commands.deployment.errors import ClusterError
from gpu_worker.commands.deployment.manager import Clusters
from gpu_worker.commands.web.access import Access
from gpu_worker.commands.web.guard import PageGuard
from gpu_worker.commands.web.server import PageServer, address
from gpu_worker.protocol.extras import install
from vispark.migrate.clusters import PLATFORMS
from vispark.migrate.errors import HistoryError, JobMissing, MissingPackage
from vispark.migrate.figure_texts import ratio_text
from vispark.migrate.report.compared_runs import compared
from vispark.migrate.report.job_page import is_validated, page, page_parts, rendered
from vispark.migrate.store.history import History

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
    from starlette.routing import Route
except ImportError:
    Starlette = None  # type: ignore[assignment, misc]

#: Jobs on a page.
PAGE = 50
_STYLE = Path(__file__).parent / "templates" / "style.css"
_AGAIN = "'vispark report ui' prints a new one when it is started again"


def application(access: Access, names: Collection[str] = (), path: Path | None = None) -> PageGuard:
    """Return the report as an ASGI application; each request reads the store anew, and none writes it.

    Parameters
    ----------
    access : Access
        Who may read.
    names : collection of str, optional
        Host names under which it is reached, beside addresses and localhost.
    path : Path, optional
        The store. [default: $VISPARK_HISTORY, or a file in the user's data folder]

    Raises
    ------
    MissingPackage
        If Starlette or Jinja2 is missing.
    """
    if Starlette is None:
        raise MissingPackage(f"the report in a browser needs starlette and uvicorn: {install('report')}")
    pages = _Pages(path)
    routes = [Route("/", pages.jobs), Route("/clusters", pages.clusters), Route("/job/{job:int}", pages.job),
              Route("/job/{job:int}/mail", pages.mail),
              Route("/job/{job:int}/compare", pages.compare), Route("/run/{run:int}/trace", pages.trace),
              Route("/style.css", lambda _: FileResponse(_STYLE, media_type="text/css"))]
    return PageGuard(Starlette(routes=routes, exception_handlers={
        HistoryError: _problem, ClusterError: _problem, 404: _nothing}), access, names, again=_AGAIN)


class _Pages:
    """Answers to requests, each from the store as it is then."""

    def __init__(self, path: Path | None):
        self._path = path

    def jobs(self, request: Request) -> Response:
        """Return the page of the jobs, the newest first, or the way to the one that a link names."""
        if job := _number(request, "job"):
            return RedirectResponse(f"job/{job}")
        search, offset = request.query_params.get("search", ""), max(0, _number(request, "offset"))
        history = History(self._path)
        jobs = history.jobs(PAGE + 1, offset, search)
        rows = [_shown(each) for each in jobs[:PAGE]]
        return HTMLResponse(rendered("jobs.html", root="", jobs=rows, all=history.count(), search=search,
                                     validated=[each for each in rows if each["ratio"]],
                                     before=max(0, offset - PAGE) if offset else None,
                                     after=offset + PAGE if len(jobs) > PAGE else None))

    def clusters(self, request: Request) -> Response:
        """Return the page of the clusters, as they are recorded; platforms are asked by ``?ask=1`` alone."""
        runs = History(self._path).runs_on_clusters()
        is_asking = request.query_params.get("ask") == "1"
        statuses = [{**asdict(each), "runs": [run for run in runs if run["cluster"] == each.name]}
                    for each in Clusters(platforms=tuple(PLATFORMS)).statuses(is_asking)]
        return HTMLResponse(rendered("clusters.html", root="", clusters=statuses, asked=is_asking))

    def job(self, request: Request) -> Response:
        """Return a job's page."""
        job = History(self._path).whole_job(request.path_params["job"])
        return HTMLResponse(rendered("job_page.html", root="../", live=True, **page_parts(job)))

    def mail(self, request: Request) -> Response:
        """Return a job's page as one file."""
        job = History(self._path).whole_job(request.path_params["job"])
        # A header has characters of ASCII.
        name = "".join(each if (each.isascii() and each.isalnum()) or each in "-_" else "_"
                       for each in Path(job["name"]).stem)
        return HTMLResponse(page(job), headers={"content-disposition": f"attachment; filename={name}.html"})

    def compare(self, request: Request) -> Response:
        """Return two runs of a job beside each other."""
        job = History(self._path).whole_job(request.path_params["job"])
        runs = {run["id"]: run for run in job["runs"]}
        first, second = (runs.get(_number(request, name)) for name in ("first", "second"))
        if first is None or second is None:
            raise JobMissing(f"job {job['id']} has no two such runs; it has {', '.join(map(str, runs)) or 'none'}")
        verdict = job["validations"][-1]["verdict"] if job["validations"] else None
        return HTMLResponse(rendered("compare.html", root="../../", job=job, first=first, second=second,
                                     shown=is_validated(verdict), rows=compared(first, second, is_validated(verdict))))

    def trace(self, request: Request) -> Response:
        """Return the trace that a run wrote, as ui.perfetto.dev opens it."""
        run = request.path_params["run"]
        path = Path(History(self._path).log_of(run) or "")
        if not path.is_file():
            raise JobMissing(f"the trace of run {run} is not there any more")
        return FileResponse(path, filename=f"run-{run}{path.suffix or '.json'}", media_type="application/octet-stream")


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _shown(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job of a list with its speed-up, where it may be said."""
    is_shown = is_validated(job["verdict"])
    is_timed = is_shown and job["cpu_seconds"] and job["gpu_seconds"]
    ratio = ratio_text(job["cpu_seconds"] / job["gpu_seconds"]) if is_timed else ""
    return {**job, "shown": is_shown, "ratio": ratio}


def _problem(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, JobMissing) else 503
    return HTMLResponse(rendered("problem.html", root="/", message=str(error)), status)


def _nothing(_: Request, __: Exception) -> Response:
    return HTMLResponse(rendered("problem.html", root="/", message="There is no such page."), 404)


class ReportServer:
    """Server of the report's pages at a socket that listens.

    Parameters
    ----------
    sock : socket.socket
        From :func:`~gpu_worker.commands.web.server.listen`.
    names : collection of str, optional
        Host names under which it is reached.
    certificate, key : str, optional
        Files of a TLS certificate and its key.
    path : Path, optional
        The store.
    """

    def __init__(self, sock: socket.socket, names: Collection[str] = (), certificate: str | None = None,
                 key: str | None = None, path: Path | None = None):
        self.access = Access()
        self._address = address(sock, bool(certificate), names)
        self._server = PageServer(application(self.access, names, path), sock, certificate, key)

    def link(self, job: int | None = None) -> str:
        """Return a new link, which opens once: to the jobs, or to one of them."""
        # The cookie is for the folder of the address that gives it, and must be for all pages.
        return f"{self._address}/?token={self.access.new_token()}{'' if job is None else f'&job={job}'}"

    def run(self) -> None:
        """Serve until an interrupt."""
        self._server.run()

    def stop(self) -> None:
        """End the server soon; any thread may call it."""
        self._server.stop()
