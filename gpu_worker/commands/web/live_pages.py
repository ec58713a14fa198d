"""Pages that a feed keeps up to date, as an ASGI application: a page, its stream of events, and files for both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from gpu_worker.commands.web.access import Access
from gpu_worker.commands.web.guard import PageGuard
from gpu_worker.commands.web.stream import Events, Feed
from gpu_worker.protocol.errors import WorkerError
from gpu_worker.protocol.extras import install

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
except ImportError:
    Starlette = None  # type: ignore[assignment, misc]

#: Styles and scripts that such pages share, and uPlot.
ASSETS = Path(__file__).parent / "assets"
#: Status, media type and body of an answer.
PageAnswer = tuple[int, str, bytes]


def live_application(feed: Feed, pages: Path, access: Access, names: Collection[str] = (), *, again: str = "",
                     is_ending: Callable[[], bool] = lambda: False,
                     answers: Mapping[str, Callable[[], PageAnswer]] | None = None,
                     open_paths: Collection[str] = ()) -> PageGuard:
    """Return the application of a page that a feed keeps up to date.

    Parameters
    ----------
    feed : Feed
        Which looks once a second for all viewers.
    pages : Path
        Folder with the page behind the head that all have, ``index.html`` from its title on, and its script.
    access : Access
        Who may read it.
    names : collection of str, optional
        Host names under which it is reached, beside addresses and localhost.
    again : str, optional
        How one has another link.
    is_ending : callable, optional
        Whether the server waits for its streams to end.
    answers : mapping of str to callable, optional
        What else there is, by path.
    open_paths : collection of str, optional
        Paths that everybody may read.

    Raises
    ------
    WorkerError
        If starlette is missing.
    """
    if Starlette is None:
        raise WorkerError(f"the dashboard needs starlette and uvicorn: {install('dashboard')}")

    def page(_: Request) -> Response:
        return Response(b"".join(path.read_bytes() for path in (ASSETS / "head.html", pages / "index.html")),
                        media_type="text/html")

    def answered(answer: Callable[[], PageAnswer]) -> Callable[[Request], Response]:
        def respond(_: Request) -> Response:
            status, kind, body = answer()
            return Response(body, status, media_type=kind)
        return respond

    routes = [Route("/", page), Route("/events", Events(feed, is_ending)),
              *(Route(path, answered(answer)) for path, answer in (answers or {}).items()),
              Mount("/pages", StaticFiles(directory=pages)), Mount("/assets", StaticFiles(directory=ASSETS))]
    return PageGuard(Starlette(routes=routes, lifespan=feed.running), access, names, open_paths, again)
