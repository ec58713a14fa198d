"""Authentication of both sides of a TCP connection.

In the clear, the client names the version and the session: ``vispark 4 SESSION``, one line. The daemon answers
``ready`` when the session's device process has the connection, or ``refused`` and why. TLS follows. The client compares
the process's certificate with the one that it knows, byte by byte. Then the process sends a :class:`Challenge`, the
client a :class:`Proof`, and the process its own. A proof is HMAC-SHA256, keyed with the session's secret, over the side
that makes it, the session, both challenges and the certificate: it is of use neither to the other side, nor for another
session or another time, nor to somebody between the two, who must have shown another certificate.
"""

from __future__ import annotations

import hmac
import secrets
import ssl

NONCE_BYTES = 32

#: The longest line that is read of an unauthenticated peer, and the longest that is read of a daemon.
MAX_LINE = 96
MAX_ANSWER = 400

READY = "ready"
REFUSED = "refused"

#: How long all of it may take each side, in seconds.
ADMISSION_SECONDS = 10.0

TLS = ssl.TLSVersion.TLSv1_3


def nonce() -> bytes:
    """Return a random challenge."""
    return secrets.token_bytes(NONCE_BYTES)


def proof(secret: bytes, side: str, session: str, nonces: bytes, certificate: bytes) -> bytes:
    """Return the proof of a side, "client" or "worker".

    Parameters
    ----------
    secret : bytes
        The session's.
    side : str
        Who makes it.
    session : str
        The session's name.
    nonces : bytes
        Both challenges, the worker's first.
    certificate : bytes
        The worker's, as it was shown on this connection.
    """
    parts = (b"vispark", side.encode(), session.encode(), nonces, certificate)
    return hmac.digest(secret, b"".join(len(part).to_bytes(8, "big") + part for part in parts), "sha256")
