"""Guard before an ASGI application: it reads, for those who may, under the names that the server has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from gpu_worker.commands.web.access import Access, is_own_host

AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApplication = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]

#: Everything comes from the server itself: no script in a page, none from elsewhere, no frame around the page.
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
          "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")

_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)

#: A redirection would not do: a browser that comes from another site sends no SameSite=Strict cookie after one.
_OPENED = ('<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={where}">'
           '<link rel="icon" href="data:,"><title>vispark</title><a href="{where}">Go on</a>')


class PageGuard:
    """ASGI application that answers for another one where a request may not be answered by it.

    A request is answered if its ``Host`` is the server's (400 else), it only reads (405), and it comes with the
    server's cookie or its secret (403). ``?token=`` of a link is taken for the cookie, and goes from the address. Every
    answer has a strict Content-Security-Policy.

    Parameters
    ----------
    application : ASGI application
        Which answers the others.
    access : Access
        Who may read.
    names : collection of str, optional
        Host names under which the server is reached, beside addresses and localhost.
    open_paths : collection of str, optional
        Paths that need no right, such as ``/health``.
    again : str, optional
        How one has another link, for the answer to who has none.

    Examples
    --------
    >>> async def application(scope, receive, send):
    ...     pass
    >>> guard = PageGuard(application, Access(), names=["node7"], open_paths=["/health"])
    """

    def __init__(self, application: AsgiApplication, access: Access, names: Collection[str] = (),
                 open_paths: Collection[str] = (), again: str = ""):
        self._application, self._access = application, access
        self._names, self._open_paths, self._again = tuple(names), frozenset(open_paths), again

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer a request, or let the application do it; a websocket is refused."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not is_own_host(headers.get("host", ""), self._names):
            await _answer(send, 400, "this server has another name\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, "this server is only read\n", [(b"allow", b"GET, HEAD")])
        elif (token := _token(scope)) is not None:
            await self._open(scope, send, token)
        elif scope["path"] in self._open_paths or self._may(headers):
            await self._application(scope, receive, send)
        else:
            await _answer(send, 403, self._sentence("open the link that the server printed"))

    def _may(self, headers: MutableMapping[str, str]) -> bool:
        return (self._access.is_known_program(headers.get("authorization", ""))
                or self._access.is_known_browser(_cookie(headers.get("cookie", ""), self._access.cookie_name)))

    async def _open(self, scope: AsgiScope, send: AsgiSend, token: str) -> None:
        if not self._access.redeem(token):
            await _answer(send, 403, self._sentence("this link was opened already, is too old, or of another server"))
            return
        # Without Path: behind a proxy the path that the browser knows is another one.
        cookie = f"{self._access.cookie_name}={self._access.cookie}; HttpOnly; SameSite=Strict"
        if scope.get("scheme") == "https":
            cookie += "; Secure"
        await _answer(send, 200, _OPENED.format(where=_without_token(scope)),
                      [(b"set-cookie", cookie.encode())], b"text/html; charset=utf-8")

    def _sentence(self, what: str) -> str:
        return f"{what}{f'; {self._again}' if self._again else ''}\n"


def _with_headers(send: AsgiSend) -> AsgiSend:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in _HEADERS}
            others = [pair for pair in message.get("headers", []) if pair[0].lower() not in own]
            message = {**message, "headers": [*others, *_HEADERS]}
        await send(message)
    return send_with_headers


def _queries(scope: AsgiScope) -> list[tuple[str, str]]:
    return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _token(scope: AsgiScope) -> str | None:
    return next((value for name, value in _queries(scope) if name == "token"), None)


def _without_token(scope: AsgiScope) -> str:
    """Return the address of a request without its token, as seen from itself."""
    # The last part alone, in characters that mean nothing in HTML: a browser takes it from where it is.
    last = "".join(each for each in scope["path"].rpartition("/")[2] if each.isalnum() or each in "-_.")
    query = urlencode([(name, value) for name, value in _queries(scope) if name != "token"])
    return f"./{last}" + (f"?{query}".replace("&", "&amp;") if query else "")


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


async def _answer(send: AsgiSend, status: int, body: str, headers: Iterable[tuple[bytes, bytes]] = (),
                  kind: bytes = b"text/plain; charset=utf-8") -> None:
    content = body.encode()
    await send({"type": "http.response.start", "status": status,
                "headers": [(b"content-type", kind), (b"content-length", str(len(content)).encode()), *headers]})
    await send({"type": "http.response.body", "body": content})
