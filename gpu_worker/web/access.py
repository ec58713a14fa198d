"""Rights to read a server's pages: links that open once, the cookie that they give, and a secret for programs."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable, Collection

#: Bytes of a secret: 192 bits.
_BYTES = 24
#: Seconds in which a link has to be opened.
LINK_SECONDS = 300.0
#: Links that may wait to be opened at one time; the oldest one goes for a new one.
_MOST_LINKS = 100


class Access:
    """Rights to one server's pages, kept in its memory; any thread may call it.

    A browser opens a link, whose token holds once and for ``seconds``, and has a cookie from then on. A program, such
    as Prometheus, sends ``secret`` as a bearer token.

    Parameters
    ----------
    secret : str, optional
        Text that programs send; a new one of 192 bits without it.
    seconds : float, optional
        How long a link can be opened.
    clock : callable, optional
        Seconds of a clock that never goes back.

    Examples
    --------
    >>> access = Access()
    >>> token = access.new_token()
    >>> access.redeem(token), access.redeem(token), access.redeem("of someone else")
    (True, False, False)
    """

    def __init__(self, secret: str = "", seconds: float = LINK_SECONDS, clock: Callable[[], float] = time.monotonic):
        self.secret = secret or secrets.token_urlsafe(_BYTES)
        #: Value of the cookie of browsers that opened a link.
        self.cookie = secrets.token_urlsafe(_BYTES)
        #: Browsers keep cookies by host, not by port: each server has a name of its own.
        self.cookie_name = "vispark_" + hashlib.sha256(self.secret.encode()).hexdigest()[:12]
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._ends: dict[str, float] = {}

    def new_token(self) -> str:
        """Return the token of a new link."""
        token, now = secrets.token_urlsafe(_BYTES), self._clock()
        with self._lock:
            self._ends = {old: end for old, end in self._ends.items() if end > now}
            while len(self._ends) >= _MOST_LINKS:
                del self._ends[next(iter(self._ends))]
            self._ends[token] = now + self._seconds
        return token

    def redeem(self, token: str) -> bool:
        """Return whether a link's token holds; it holds no more after this."""
        with self._lock:
            end = self._ends.pop(token, None)
        return end is not None and end > self._clock()

    def is_known_browser(self, cookie: str) -> bool:
        """Return whether a cookie's value is that of this server."""
        return hmac.compare_digest(cookie.encode(), self.cookie.encode())

    def is_known_program(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header has this server's secret."""
        scheme, _, said = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(said.strip().encode(), self.secret.encode())


def is_own_host(header: str, names: Collection[str] = ()) -> bool:
    """Return whether a request's ``Host`` is an address, localhost, or one of the names of the server.

    A page of another site that a browser shows can make its own name stand for this machine; the browser would let it
    read the answers then, but sends that name as ``Host``.

    Examples
    --------
    >>> own = ["node7"]
    >>> [is_own_host(host, own) for host in ("127.0.0.1:9464", "[::1]:80", "localhost", "node7:1", "evil.org", "")]
    [True, True, True, True, False, False]
    """
    host = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    host = host.strip("[]").lower()
    if host in ("localhost", *(name.lower() for name in names)):
        return bool(host)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
