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


class Access:
    """Rights to one server's pages, kept in its memory; any thread may call it.

    A browser opens a link, whose token is signed with ``secret``, so that another process that has it makes links, too,
    and holds once and for ``seconds``, and has a cookie from then on. A program, such
    as Prometheus, sends ``secret`` as a bearer token.

    Parameters
    ----------
    secret : str, optional
        Text that programs send; a new one of 192 bits without it.
    seconds : float, optional
        How long a link can be opened.
    clock : callable, optional
        Seconds since 1970, as of all processes that make links.

    Examples
    --------
    >>> access = Access()
    >>> token = access.new_token()
    >>> access.redeem(token), access.redeem(token), access.redeem("of someone else")
    (True, False, False)
    """

    def __init__(self, secret: str = "", seconds: float = LINK_SECONDS, clock: Callable[[], float] = time.time):
        self.secret = secret or secrets.token_urlsafe(_BYTES)
        #: Value of the cookie of browsers that opened a link.
        self.cookie = secrets.token_urlsafe(_BYTES)
        #: Browsers keep cookies by host, not by port: each server has a name of its own.
        self.cookie_name = "vispark_" + hashlib.sha256(self.secret.encode()).hexdigest()[:12]
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        #: Links that were opened, and when they would be too old.
        self._used: dict[str, float] = {}

    def new_token(self) -> str:
        """Return the token of a new link."""
        body = f"{self._clock() + self._seconds:.0f}.{secrets.token_urlsafe(_BYTES)}"
        return f"{body}.{self._signature(body)}"

    def redeem(self, token: str) -> bool:
        """Return whether a link's token holds; it holds no more after this."""
        body, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(body).encode()):
            return False
        now, end = self._clock(), float(body.partition(".")[0])
        with self._lock:
            self._used = {old: its_end for old, its_end in self._used.items() if its_end > now}
            is_new = body not in self._used
            self._used[body] = end
        return is_new and end > now

    def _signature(self, body: str) -> str:
        return hmac.new(self.secret.encode(), body.encode(), "sha256").hexdigest()

    def is_known_browser(self, cookie: str) -> bool:
        """Return whether a cookie's value is that of this server."""
        return hmac.compare_digest(cookie.encode(), self.cookie.encode())

    def is_known_program(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header has this server's secret."""
        scheme, _, secret = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(secret.strip().encode(), self.secret.encode())


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
