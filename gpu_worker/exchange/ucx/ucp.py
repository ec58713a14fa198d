"""Binding of the few functions of UCX's protocol layer (UCP) that an exchange needs. The one file that loads libucp.

The library is that of the wheel ``libucx-cu13``, or the system's where there is no wheel; as that wheel's own loader
has it, ``RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY=true`` prefers the system's. No function here may be called by two threads
at once for one :class:`UcxWorker`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_int8, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_worker.protocol.errors import WorkerUnavailable, WorldLost
from gpu_worker.protocol.extras import install

#: The version of the interface that the structures below are of; later ones append to them.
_VERSION = 1, 17

_OK, _IN_PROGRESS, _LAST_ERROR = 0, 1, -100
_FIRST_ERROR_POINTER = 2**64 + _LAST_ERROR

#: The most ways of one connection that are asked for.
_MOST_TRANSPORTS = 64

#: What is asked of a context and a worker: messages with tags, by one thread at a time.
_FEATURE_TAG, _SERIALIZED = 1, 1
_ERRORS_OF_PEERS = 1
_CLOSE_AT_ONCE = 1
_EVERY_BIT = 2**64 - 1

#: The numbers of the kinds of memory, by the device's kind.
MEMORY = {"host": 0, "cuda": 1}

#: What UCX is told where the environment says nothing: to share no memory of System V, which a group may write; to look
#: in each second whether a peer is there, over shared memory too; to leave signals to this process; and to move more
#: than 8 KiB by a system call over TCP.
_SETTINGS = {"UCX_TLS": "^sysv", "UCX_KEEPALIVE_INTERVAL": "1s", "UCX_MM_ERROR_HANDLING": "y",
             "UCX_ERROR_SIGNALS": "", "UCX_TCP_TX_SEG_SIZE": "512k", "UCX_TCP_RX_SEG_SIZE": "512k",
             "UCX_WARN_UNUSED_ENV_VARS": "n"}


class _Params(ctypes.Structure):
    _fields_ = (("fields", c_uint64), ("features", c_uint64), ("request_size", c_size_t), ("init", c_void_p),
                ("cleanup", c_void_p), ("sender_mask", c_uint64), ("workers_shared", c_int), ("peers", c_size_t),
                ("per_node", c_size_t), ("name", c_char_p), ("local_id", c_size_t))


class _WorkerParams(ctypes.Structure):
    _fields_ = (("fields", c_uint64), ("thread_mode", c_int), ("cpus", c_uint64 * 16), ("events", c_uint),
                ("user_data", c_void_p), ("event_fd", c_int), ("flags", c_uint64), ("name", c_char_p),
                ("alignment", c_size_t), ("client", c_uint64))


class _ContextAttributes(ctypes.Structure):
    _fields_ = (("fields", c_uint64), ("request_size", c_size_t), ("thread_mode", c_int), ("memory_types", c_uint64),
                ("name", ctypes.c_char * 32), ("counter_size", c_size_t))


class _SocketAddress(ctypes.Structure):
    _fields_ = (("address", c_void_p), ("length", ctypes.c_uint32))


_OnError = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int8)


class _EndpointParams(ctypes.Structure):
    _fields_ = (("fields", c_uint64), ("address", c_char_p), ("error_mode", c_int), ("on_error", _OnError),
                ("error_argument", c_void_p), ("user_data", c_void_p), ("flags", c_uint), ("socket", _SocketAddress),
                ("request", c_void_p), ("name", c_char_p), ("local_socket", _SocketAddress))


class _Transport(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("device", c_char_p))


class _Transports(ctypes.Structure):
    _fields_ = (("entries", POINTER(_Transport)), ("count", c_uint), ("size", c_size_t))


class _EndpointAttributes(ctypes.Structure):
    _fields_ = (("fields", c_uint64), ("name", ctypes.c_char * 32), ("local_socket", c_uint64 * 16),
                ("remote_socket", c_uint64 * 16), ("transports", _Transports), ("user_data", c_void_p))


class _MapParams(ctypes.Structure):
    _fields_ = (("fields", c_uint64), ("address", c_void_p), ("length", c_size_t), ("flags", c_uint),
                ("protection", c_uint), ("memory_type", c_int), ("exported", c_void_p))


class _RequestParams(ctypes.Structure):
    _fields_ = (("mask", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("request", c_void_p), ("callback", c_void_p),
                ("datatype", c_uint64), ("user_data", c_void_p), ("reply_buffer", c_void_p), ("memory_type", c_int),
                ("received", c_void_p), ("memory", c_void_p), ("remote_datatype", c_uint64), ("remote", c_void_p),
                ("remote_count", c_size_t))


class _Received(ctypes.Structure):
    _fields_ = (("tag", c_uint64), ("length", c_size_t))


#: Of each function, what it gives and takes.
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ucp_config_read": (c_int8, (c_char_p, c_char_p, POINTER(c_void_p))),
    "ucp_config_release": (None, (c_void_p,)),
    "ucp_init_version": (c_int8, (c_uint, c_uint, POINTER(_Params), c_void_p, POINTER(c_void_p))),
    "ucp_cleanup": (None, (c_void_p,)),
    "ucp_context_query": (c_int8, (c_void_p, POINTER(_ContextAttributes))),
    "ucp_worker_create": (c_int8, (c_void_p, POINTER(_WorkerParams), POINTER(c_void_p))),
    "ucp_worker_destroy": (None, (c_void_p,)),
    "ucp_worker_get_address": (c_int8, (c_void_p, POINTER(c_void_p), POINTER(c_size_t))),
    "ucp_worker_release_address": (None, (c_void_p, c_void_p)),
    "ucp_worker_progress": (c_uint, (c_void_p,)),
    "ucp_worker_flush_nbx": (c_void_p, (c_void_p, POINTER(_RequestParams))),
    "ucp_ep_create": (c_int8, (c_void_p, POINTER(_EndpointParams), POINTER(c_void_p))),
    "ucp_ep_query": (c_int8, (c_void_p, POINTER(_EndpointAttributes))),
    "ucp_ep_close_nbx": (c_void_p, (c_void_p, POINTER(_RequestParams))),
    "ucp_tag_send_nbx": (c_void_p, (c_void_p, c_void_p, c_size_t, c_uint64, POINTER(_RequestParams))),
    "ucp_tag_recv_nbx": (c_void_p, (c_void_p, c_void_p, c_size_t, c_uint64, c_uint64, POINTER(_RequestParams))),
    "ucp_tag_probe_nb": (c_void_p, (c_void_p, c_uint64, c_uint64, c_int, POINTER(_Received))),
    "ucp_tag_msg_recv_nbx": (c_void_p, (c_void_p, c_void_p, c_size_t, c_void_p, POINTER(_RequestParams))),
    "ucp_request_check_status": (c_int8, (c_void_p,)),
    "ucp_request_cancel": (None, (c_void_p, c_void_p)),
    "ucp_request_free": (None, (c_void_p,)),
    "ucp_mem_map": (c_int8, (c_void_p, POINTER(_MapParams), POINTER(c_void_p))),
    "ucp_mem_unmap": (c_int8, (c_void_p, c_void_p)),
}


@cache
def _library() -> Any:
    """Return libucp with the functions' signatures, loaded once.

    Raises
    ------
    WorkerUnavailable
        If there is none.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    loaded: Any = None
    try:
        for part in ("libucs.so", "libuct.so", "libucp.so"):    # each needs those before it
            loaded = ctypes.CDLL(_path(part))
    except OSError as error:
        raise WorkerUnavailable(f"an exchange over UCX needs its libraries, and {error}: {install('ucx')}") from error
    for name, (gives, takes) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = gives, takes
    return loaded


def _path(part: str) -> str:
    """Return a library's file in the wheel; its name alone where the system's is to be taken."""
    spec = find_spec("libucx")
    prefers_system = os.environ.get("RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY", "false").lower() != "false"
    if spec is None or not spec.submodule_search_locations or prefers_system:
        return f"{part}.0"
    return str(Path(spec.submodule_search_locations[0]) / "lib" / part)


@cache
def _status_text() -> Callable[[int], bytes]:
    """Return UCX's function that says what a status means."""
    function = ctypes.CDLL(_path("libucs.so")).ucs_status_string
    function.restype, function.argtypes = c_char_p, (c_int8,)
    return function


def meaning(status: int) -> str:
    """Return the meaning of a status of UCX, in its words.

    Examples
    --------
    >>> meaning(-25)
    'Connection reset by remote peer'
    """
    return _status_text()(status).decode(errors="replace")


def check(status: int, doing: str) -> None:
    """Raise WorldLost for a status that is an error."""
    if status < 0:
        raise WorldLost(f"UCX: {doing}: {meaning(status)}")


class UcpRequest:
    """Operation under way, which keeps what it moves alive.

    Parameters
    ----------
    handle : int or None
        As UCX gives it: none for what is done, or an error.
    kept : object
        What must live as long.
    doing : str
        For errors.
    """

    def __init__(self, handle: int | None, kept: object, doing: str):
        self._handle, self._kept, self._doing = handle or 0, kept, doing
        if self._handle >= _FIRST_ERROR_POINTER:
            status, self._handle = self._handle - 2**64, 0
            check(status, doing)

    def done(self) -> bool:
        """Return whether it is done.

        Raises
        ------
        WorldLost
            If it failed.
        """
        if not self._handle:
            return True
        status = _library().ucp_request_check_status(self._handle)
        if status == _IN_PROGRESS:
            return False
        self.free()
        check(status, self._doing)
        return True

    def cancel(self, worker: UcxWorker) -> None:
        """Ask for its end; :meth:`done` tells when it came."""
        if self._handle:
            _library().ucp_request_cancel(worker.handle, self._handle)

    def free(self) -> None:
        """Forget it."""
        handle, self._handle, self._kept = self._handle, 0, None
        if handle:
            _library().ucp_request_free(handle)


class RegisteredMemory:
    """Memory known to the network's hardware, from and to which messages go.

    Attributes
    ----------
    address, nbytes : int
    """

    def __init__(self, worker: UcxWorker, address: int, nbytes: int, memory_type: int):
        self.address, self.nbytes = address, nbytes
        self._worker = worker
        self.parameters = _RequestParams(mask=1 << 6, memory_type=memory_type)
        self._handle = c_void_p()
        if nbytes:
            parameters = _MapParams(0b10011, address, nbytes, 0, 0, memory_type)
            check(_library().ucp_mem_map(worker.context, byref(parameters), byref(self._handle)),
                  f"{nbytes:,} bytes cannot be registered")
            self.parameters.mask |= 1 << 8
            self.parameters.memory = self._handle

    def close(self) -> None:
        """Withdraw the registration; no message may be under way."""
        if self._handle:
            _library().ucp_mem_unmap(self._worker.context, self._handle)
            self._handle = c_void_p()


class UcxEndpoint:
    """Connection to a peer's worker.

    Attributes
    ----------
    failure : str
        Why it is lost; empty as long as it is not.
    """

    def __init__(self, worker: UcxWorker, address: bytes):
        self.failure = ""
        self._handle = c_void_p()
        # Held, as UCX calls it later.
        self._on_error = _OnError(self._failed)
        options = _EndpointParams(0b111, address, _ERRORS_OF_PEERS, self._on_error)
        check(_library().ucp_ep_create(worker.handle, byref(options), byref(self._handle)), "no connection to a peer")

    def _failed(self, argument: object, endpoint: object, status: int) -> None:
        self.failure = meaning(status)

    def transports(self) -> list[str]:
        """Return the transports that UCX has chosen for it, with their devices: ``tcp/eth0``, ``posix/memory``.

        Of a connection over which no message has come yet they are not known.
        """
        entries = (_Transport * _MOST_TRANSPORTS)()
        transports = _Transports(entries, len(entries), ctypes.sizeof(_Transport))
        attributes = _EndpointAttributes(1 << 3, transports=transports)
        check(_library().ucp_ep_query(self._handle, byref(attributes)), "it does not say what it sends over")
        return [f"{each.name.decode()}/{each.device.decode()}" for each in entries[:attributes.transports.count]]

    def send(self, memory: RegisteredMemory, tag: int) -> UcpRequest:
        """Begin to send memory under a tag."""
        return UcpRequest(_library().ucp_tag_send_nbx(self._handle, memory.address, memory.nbytes, tag,
                                                   byref(memory.parameters)), memory, "a message is not sent")

    def send_bytes(self, data: bytes, tag: int) -> UcpRequest:
        """Begin to send bytes under a tag."""
        return UcpRequest(_library().ucp_tag_send_nbx(self._handle, data, len(data), tag, byref(_PLAIN)), data,
                       "a message is not sent")

    def close(self) -> UcpRequest:
        """Begin to close the connection, of which the peer learns as of a failure."""
        parameters = _RequestParams(mask=1 << 4, flags=_CLOSE_AT_ONCE)
        return UcpRequest(_library().ucp_ep_close_nbx(self._handle, byref(parameters)), self,
                          "a connection is not closed")


_PLAIN = _RequestParams(mask=0)


class UcxWorker:
    """UCX's state of one world in this process, with the connections to its peers.

    Attributes
    ----------
    address : bytes
        Where it is reached, for :meth:`connect` of others.

    Raises
    ------
    WorkerUnavailable
        If there is no UCX.
    WorldLost
        If UCX finds nothing to work over, as with a ``UCX_TLS`` that names nothing that is here.
    """

    def __init__(self) -> None:
        library = _library()
        self.context, self.handle, settings = c_void_p(), c_void_p(), c_void_p()
        check(library.ucp_config_read(None, None, byref(settings)), "its settings cannot be read")
        try:
            check(library.ucp_init_version(*_VERSION, byref(_Params(1, _FEATURE_TAG)), settings, byref(self.context)),
                  f"it cannot begin (UCX_TLS is {os.environ.get('UCX_TLS', 'not set')})")
        finally:
            library.ucp_config_release(settings)
        try:
            check(library.ucp_worker_create(self.context, byref(_WorkerParams(1, _SERIALIZED)), byref(self.handle)),
                  "no worker can be made")
            self.address = self._address()
            described = _ContextAttributes(1 << 2)
            check(library.ucp_context_query(self.context, byref(described)), "it does not say what it reaches")
            self._memory_types = described.memory_types
        except WorldLost:
            self.close()
            raise

    def _address(self) -> bytes:
        address, length = c_void_p(), c_size_t()
        check(_library().ucp_worker_get_address(self.handle, byref(address), byref(length)), "a worker has no address")
        try:
            return ctypes.string_at(address, length.value)
        finally:
            _library().ucp_worker_release_address(self.handle, address)

    def moves(self, kind: str) -> bool:
        """Return whether messages leave from, and arrive in, the memory of a kind of device."""
        return kind in MEMORY and bool(self._memory_types >> MEMORY[kind] & 1)

    def connect(self, address: bytes) -> UcxEndpoint:
        """Return a connection to the worker with an address, which comes to be with the first messages."""
        return UcxEndpoint(self, address)

    def register(self, address: int, nbytes: int, kind: str) -> RegisteredMemory:
        """Return memory of a kind of device, registered until it is closed."""
        return RegisteredMemory(self, address, nbytes, MEMORY[kind])

    def progress(self) -> bool:
        """Progress the worker's messages; return whether anything happened."""
        return bool(_library().ucp_worker_progress(self.handle))

    def receive(self, memory: RegisteredMemory, tag: int) -> UcpRequest:
        """Begin to receive a message of a tag."""
        return UcpRequest(_library().ucp_tag_recv_nbx(self.handle, memory.address, memory.nbytes, tag, _EVERY_BIT,
                                                      byref(memory.parameters)), memory, "a message is not received")

    def arrived(self, tag: int) -> tuple[ctypes.Array[Any], UcpRequest] | None:
        """Begin to receive a message of any length with this tag, and return its memory; None if none has come."""
        probed = _Received()
        message = _library().ucp_tag_probe_nb(self.handle, tag, _EVERY_BIT, 1, byref(probed))
        if message is None:
            return None
        data = ctypes.create_string_buffer(probed.length)
        status = _library().ucp_tag_msg_recv_nbx(self.handle, data, probed.length, message, byref(_PLAIN))
        return data, UcpRequest(status, data, "a message is not received")

    def flush(self) -> UcpRequest:
        """Begin to send all that was given to UCX, so that nothing waits for :meth:`progress` then."""
        return UcpRequest(_library().ucp_worker_flush_nbx(self.handle, byref(_PLAIN)), self, "messages are not sent")

    def close(self) -> None:
        """End it; connections must be closed before."""
        handle, self.handle = self.handle, c_void_p()
        if handle:
            _library().ucp_worker_destroy(handle)
        context, self.context = self.context, c_void_p()
        if context:
            _library().ucp_cleanup(context)
