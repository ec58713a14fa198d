"""Part of the protocol that all versions share: identification, refusals and the request to end.

A greeting is led by version and role, and the places of a few members of unions stay, so that each side can tell the
other why it is refused, whatever else changed, and a daemon of any version can be stopped.
"""

from __future__ import annotations

from gpu_worker.protocol.codec import decode, leading
from gpu_worker.protocol.errors import ProtocolError, VisparkError
from gpu_worker.protocol.messages import VERSION, AdminReply, Failure, Greeting, Hello, SessionOptions
from gpu_worker.protocol.wire import error_of

#: What to do where versions differ.
ADVICE = "install the same vispark on both, and end the worker with 'gpu-worker stop', which ends any version"


def greeting(body: bytes | bytearray) -> Hello:
    """Return a greeting; of one of another version, only its version and role are read.

    Raises
    ------
    ProtocolError
        If it is none.
    """
    version = leading(body, int, str)
    return decode(body, Hello) if not version or version[0] == VERSION else asking(version[1], version[0])


def asking(role: str, version: int = VERSION) -> Hello:
    """Return a greeting that names no session."""
    return Hello(version, role, "", b"", "", 0, SessionOptions("", 0, 0.0, "", ""))


def answer(body: bytes | bytearray, of: object) -> object:
    """Return an answer of the union ``of``.

    Raises
    ------
    ProtocolError
        If it is none, or is a refusal by a worker that could not read the greeting; with both versions.
    VisparkError
        What the worker says went wrong.
    """
    try:
        reply = decode(body, of)
    except ProtocolError as error:
        reply = _refusal(body)
        if reply is None:
            raise ProtocolError(f"the worker answers otherwise than in version {VERSION} of the protocol, which this "
                                f"client speaks: {error.message}; {ADVICE}") from error
    if isinstance(reply, Failure):
        raise _with_version(error_of(reply))
    return reply


def other_version(version: int) -> ProtocolError:
    """Return the refusal of a client of another version."""
    return ProtocolError(f"the client speaks version {version} of the protocol and this worker {VERSION}; {ADVICE}")


def _refusal(body: bytes | bytearray) -> Failure | None:
    """Decode a failure that came as a member of another union, from a daemon that could not read the request."""
    for union in (Greeting, AdminReply):
        try:
            reply = decode(body, union)
        except ProtocolError:
            continue
        if isinstance(reply, Failure):
            return reply
    return None


def _with_version(error: VisparkError) -> VisparkError:
    """Return a protocol error with this side's version added, if the error may be due to the version and does not name
    it; other errors as they are.
    """
    if not isinstance(error, ProtocolError) or f"version {VERSION}" in error.message:
        return error
    return ProtocolError(f"{error.message}; this client speaks version {VERSION} of the protocol; {ADVICE}",
                         error.place, error.detail)
