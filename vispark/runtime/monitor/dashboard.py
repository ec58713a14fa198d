"""Dashboard of an application, in its driver: all of its workers, and its plans by the user's line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection
from html import escape
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from gpu_worker.commands.web.access import Access
from gpu_worker.commands.web.live_pages import live_application
from gpu_worker.commands.web.server import PageServer, address, listen
from vispark.errors import PlanError, WorkerError
from vispark.runtime.driver.session import Session
from vispark.runtime.monitor import spark_pages
from vispark.runtime.monitor.feed import ApplicationFeed
from vispark.runtime.profiling import watch
from vispark.runtime.profiling.watch import FollowedPlans

_PAGES = Path(__file__).parent / "pages"
_AGAIN = "vispark.dashboard() gives another link"
_running: dict[str, ApplicationDashboard] = {}
_lock = threading.Lock()


class ApplicationDashboard:
    """Dashboard that is served by a thread of the driver, until it is closed or the SparkContext stops.

    Its text and its HTML are a new link each time, which opens once and within five minutes.
    """

    def __init__(self, session: Session, sock: socket.socket, names: Collection[str] = ()):
        self._session = session.credentials.session
        self._access = Access()
        self.address = address(sock)
        host, port = sock.getsockname()[:2]
        self._template = session.options.dashboardLink.format(host=host, port=port)
        self._context = session.context
        link = self._template if self._template.startswith("/") else spark_pages.lead(self._context, self._root)
        followed = FollowedPlans(link=link, closed=self._stop)
        self._feed = ApplicationFeed(session, followed)
        self._server = PageServer(live_application(self._feed, _PAGES, self._access, names, again=_AGAIN,
                                                   is_ending=self._is_ending), sock)
        self._thread = threading.Thread(target=self._run, name="vispark dashboard", daemon=True)
        watch.begin(self._session, followed)
        self._thread.start()

    def link(self) -> str:
        """Return a new link, which opens once: at the server's own address, or as ``spark.vispark.dashboardLink`` says.

        Raises
        ------
        PlanError
            If the server has ended.
        """
        if self._is_ending():
            raise PlanError("this dashboard has ended; vispark.dashboard() serves another")
        return f"{self._root}?token={self._access.new_token()}"

    @property
    def _root(self) -> str:
        return f"{(self._template or self.address).rstrip('/')}/"

    def close(self) -> None:
        """End the server; plans are followed no more."""
        watch.end(self._session)

    def _is_ending(self) -> bool:
        return self._server.is_ending

    def _run(self) -> None:
        self._server.run()
        self._feed.close()

    def _stop(self) -> None:
        with _lock:
            _running.pop(self._session, None)
        spark_pages.end(self._context)
        self._server.stop()
        self._thread.join()

    def __repr__(self) -> str:
        return f"vispark dashboard: {'ended' if self._is_ending() else self.link()}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        if self._is_ending():
            return {"text/plain": repr(self)}
        link = self.link()
        return {"text/plain": f"vispark dashboard: {link}",
                "text/html": f'<a href="{escape(link)}" target="_blank">vispark dashboard: {escape(link)}</a>'}


def dashboard(context: SparkContext | None = None, *, port: int = 0, names: Collection[str] = ()
              ) -> ApplicationDashboard:
    """Serve a page with all of an application's workers, what they hold, and its plans by the program's lines.

    It listens on the loopback interface of the driver's machine, only reads, and ends with the SparkContext. Where it
    runs already, that one is returned.

    Parameters
    ----------
    context : SparkContext, optional
        The application's. [default: the active one]
    port : int, optional
        Where it listens. [default: any that is free]
    names : collection of str, optional
        Host names under which a proxy reaches it, beside addresses and localhost.

    Returns
    -------
    ApplicationDashboard
        Its ``link()`` opens once and within five minutes; a notebook shows it.

    Raises
    ------
    PlanError
        If there is no active SparkContext.
    WorkerError
        If starlette or uvicorn is missing, or the port is taken.

    Examples
    --------
    >>> import vispark
    >>> shown = vispark.dashboard(sc)
    >>> shown.link().startswith("http://127.0.0.1:")
    True
    >>> shown.close()
    """
    context = context or SparkContext._active_spark_context
    if context is None:
        raise PlanError("there is no active SparkContext; vispark.dashboard(context) takes one")
    session = Session.of(context)
    with _lock:
        served = _running.get(session.credentials.session)
        if served is None:
            sock = listen("127.0.0.1", port)
            try:
                served = ApplicationDashboard(session, sock, names)
            except WorkerError:
                sock.close()
                raise
            _running[session.credentials.session] = served
    return served
