"""Messages, frames and payloads: what arrives is what was sent, and nothing else is taken."""

from __future__ import annotations

import dataclasses
import fcntl
import mmap
import os
import socket
import struct
import sys
import threading
import time
import types
import typing

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_worker.protocol import codec, errors, processors, wire
from gpu_worker.protocol.codec import MAX_ITEMS, decode, encode
from gpu_worker.protocol.errors import Place, ProtocolError, VisparkError, WorkerLost
from gpu_worker.protocol.frame_scan import FrameScan
from gpu_worker.protocol.messages import (
    AdminReply,
    AdminRequest,
    ArgumentValue,
    Done,
    Failure,
    Field,
    Greeting,
    Hello,
    Input,
    KeepStep,
    Plan,
    PutStep,
    Release,
    Reply,
    Report,
    Request,
    Run,
    Signature,
)
from gpu_worker.protocol.payload import ALIGNMENT, Payload, block_bytes, field_bytes, field_offsets
from gpu_worker.protocol.stream import StreamConnection
from gpu_worker.protocol.wire import MAX_DESCRIPTORS, MAX_FRAME, Connection, error_of, failure_of

UNIONS = {"Request": Request, "Reply": Reply, "AdminRequest": AdminRequest, "AdminReply": AdminReply,
          "Greeting": Greeting, "Hello": Hello, "Place": Place, "Plan": Plan}

_PLAIN = {
    int: st.integers(-(1 << 63), (1 << 64) - 1),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
}


def values(of) -> st.SearchStrategy:
    """Return values of a message's annotation."""
    if of in _PLAIN:
        return _PLAIN[of]
    if dataclasses.is_dataclass(of):
        hints = typing.get_type_hints(of)
        return st.builds(of, **{field.name: values(hints[field.name]) for field in dataclasses.fields(of)})
    inner = typing.get_args(of)
    if typing.get_origin(of) is tuple:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    return st.one_of(*[st.none() if member is types.NoneType else values(member) for member in inner])


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    with Connection(left) as sender, Connection(right) as receiver:
        left.settimeout(10)
        right.settimeout(10)
        yield sender, receiver


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- codec ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("of", UNIONS.values(), ids=UNIONS)
def test_what_is_decoded_is_what_was_encoded(of):
    @settings(max_examples=60, deadline=None)
    @given(values(of))
    def check(value):
        assert decode(encode(value, of), of) == value

    check()


@pytest.mark.parametrize("of", UNIONS.values(), ids=UNIONS)
def test_random_bytes_are_a_protocol_error_or_a_message(of):
    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=200))
    def check(data):
        try:
            value = decode(data, of)
        except ProtocolError:
            return
        assert decode(encode(value, of), of) == value

    check()


@settings(max_examples=300, deadline=None)
@given(values(Request), st.data())
def test_a_flipped_byte_is_a_protocol_error_or_a_message(value, data):
    frame = bytearray(encode(value, Request))
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(frame), Request)
    except ProtocolError:
        return


@settings(max_examples=200, deadline=None)
@given(values(Request), st.data())
def test_a_truncated_message_is_a_protocol_error(value, data):
    frame = encode(value, Request)
    with pytest.raises(ProtocolError):
        decode(frame[:data.draw(st.integers(0, len(frame) - 1))], Request)


@pytest.mark.parametrize("data", [
    b"",
    b"\x91" * 100_000,                                      # nested 100,000 deep
    b"\xdd\xff\xff\xff\xff",                                # an array of 4,294,967,295
    b"\xdf\xff\xff\xff\xff",                                # a map of as many
    b"\xc6\xff\xff\xff\xff",                                # bytes, as many
    b"\xc9\xff\xff\xff\xff\x01",                            # an extension, as long
    b"\x81\x01\x02",                                        # a map
    b"\xdc\xff\xff" + b"\x80" * 65535,                      # empty maps
    b"\xd4\x01\x00",                                        # an extension
    b"\xd9\x02\xff\xfe",                                    # text that is not UTF-8
    b"\x92\x00\x91\x01\x00",                                # something behind the message
    msgpack.packb([0] * (MAX_ITEMS + 1)),
], ids=["nothing", "deep", "array-bomb", "map-bomb", "bytes-bomb", "extension-bomb", "map", "maps", "extension",
        "not-utf-8", "more", "too-many-items"])
def test_bombs_and_foreign_types_are_refused(data):
    with pytest.raises(ProtocolError):
        decode(data, Request)


@pytest.mark.parametrize(("raw", "says"), [
    ([99, []], "not one of"),
    ([-1, []], "not one of"),
    ([True, [1]], "not one of"),
    ([4, [1, 2]], "an array of 2, not the 1 fields of Report"),
    ([4, ["one"]], r"message<Report>\.number is of type str, not int"),
    ([4, [True]], r"message<Report>\.number is of type bool, not int"),
    ([4, [1.0]], r"message<Report>\.number is of type float, not int"),
    ([2, [1, [1, None]]], r"message<Release>\.vrdds\[\] is of type NoneType, not int"),
    ([2, [1, None]], r"message<Release>\.vrdds is of type NoneType, not an array"),
    ([6, [1, 1, "", None, 0, 0]], r"message<HoldCopy>\.needed is of type NoneType, not an array"),
    ([0, [1, 1, 1, b"", b"", [], [], []]], "an array of 8, not the 14 fields of Run"),
    ([0, [1, 1, 1, b"", b"", [], [], [], [], False, None, -1, False, 0]], r"message<Run>\.world is an array of 0, not"),
])
def test_an_error_names_the_field(raw, says):
    with pytest.raises(ProtocolError, match=says):
        decode(msgpack.packb(raw), Request)


# -- frames -----------------------------------------------------------------------------------------------------------

def test_frames_come_in_order_with_their_descriptors(pair):
    sender, receiver = pair
    with Payload.create(10) as payload:
        payload.array[:] = 7
        sender.send(Report(1), Request)
        sender.send(Report(2), Request, [payload.descriptor])
    first, none = receiver.receive(Request)
    second, (descriptor,) = receiver.receive(Request)
    assert (first, none, second) == (Report(1), [], Report(2))
    with Payload.receive(descriptor) as received:
        assert received.size == 10 and (received.array == 7).all()


def test_a_long_frame_passes_a_short_buffer(pair):
    sender, receiver = pair
    message = Release(1, tuple(range(100_000)))
    thread = threading.Thread(target=sender.send, args=[message, Request])
    thread.start()
    assert receiver.receive(Request)[0] == message
    thread.join()


def test_a_frame_over_the_cap_is_refused_unread(pair):
    sender, receiver = pair
    sender.socket.sendall(struct.pack("!I", MAX_FRAME + 1))
    with pytest.raises(ProtocolError, match=f"{MAX_FRAME + 1} bytes is over the cap"):
        receiver.receive(Request)


def test_a_message_over_the_cap_is_not_sent(pair):
    sender, receiver = pair
    with pytest.raises(ProtocolError, match="over the cap"):
        sender.send(Failure(0, "", "x" * (MAX_FRAME + 1), "", None, "", "", ""), Reply)
    sender.send(Done(1), Reply)
    assert receiver.receive(Reply)[0] == Done(1)


@pytest.mark.parametrize("part", [b"", b"\x00\x00", b"\x00\x00\x00\x09abc"])
def test_a_connection_that_closes_is_lost(pair, part):
    sender, receiver = pair
    sender.socket.sendall(part)
    sender.close()
    with pytest.raises(WorkerLost):
        receiver.receive(Request)


def test_a_peer_that_stalls_is_lost(pair):
    sender, receiver = pair
    receiver.socket.settimeout(0.05)
    sender.socket.sendall(b"\x00\x00")
    with pytest.raises(WorkerLost):
        receiver.receive(Request)


def test_a_closed_peer_is_lost_to_a_sender(pair):
    sender, receiver = pair
    receiver.close()
    with pytest.raises(WorkerLost):
        sender.send(Report(1), Request)


@pytest.mark.parametrize("count", [MAX_DESCRIPTORS + 1, 40, 200])
def test_too_many_descriptors_are_refused_and_none_is_kept(pair, count):
    sender, receiver = pair
    before = open_descriptors()
    with open(os.devnull) as file:
        sender.send(Report(1), Request, [file.fileno()] * count)
    with pytest.raises(ProtocolError, match="descriptors"):
        receiver.receive(Request)
    assert open_descriptors() == before


def test_descriptors_in_parts_of_a_frame_are_counted_together(pair):
    sender, receiver = pair
    before = open_descriptors()
    body = encode(Report(1), Request)
    with open(os.devnull) as file:
        for byte in struct.pack("!I", len(body)) + body:
            socket.send_fds(sender.socket, [bytes([byte])], [file.fileno()] * (MAX_DESCRIPTORS // 4 + 1))
    with pytest.raises(ProtocolError, match="descriptors"):
        receiver.receive(Request)
    assert open_descriptors() == before


def test_descriptors_of_a_bad_message_are_closed(pair):
    sender, receiver = pair
    before = open_descriptors()
    with open(os.devnull) as file:
        socket.send_fds(sender.socket, [b"\x00\x00\x00\x01\xc1"], [file.fileno()])
    with pytest.raises(ProtocolError):
        receiver.receive(Request)
    assert open_descriptors() == before


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_a_stream_of_random_bytes_ends_in_a_typed_error(data):
    left, right = socket.socketpair()
    with left, Connection(right) as receiver:
        left.sendall(data)
        left.close()
        with pytest.raises((ProtocolError, WorkerLost)):
            while True:
                receiver.receive(Request)


# -- errors -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", errors.BY_NAME.values(), ids=errors.BY_NAME)
def test_every_error_crosses_a_socket(pair, kind):
    sender, receiver = pair
    error = kind("what was wrong", Place("7 grid", 3, "heat", "cuda:1"), "the compiler's words")
    sender.send(failure_of(error, 5), Reply)
    failure, _ = receiver.receive(Reply)
    raised = error_of(failure)
    assert failure.number == 5
    assert type(raised) is kind and str(raised) == str(error)


def test_a_kind_of_error_that_is_not_known_is_still_an_error():
    assert type(error_of(Failure(0, "Exit", "x", "", None, "", "", ""))) is VisparkError


# -- payloads ---------------------------------------------------------------------------------------------------------

SIGNATURE = Signature((Field("a", "<f4", (3, 5)), Field("b", "|u1", (7,)), Field("c", "<c16", (0, 2)),
                       Field("d", "<i8", ())))


def test_fields_are_aligned_and_do_not_overlap():
    with Payload.create(block_bytes(SIGNATURE)) as payload:
        placed = list(field_offsets(SIGNATURE, 0))
        assert all(offset % ALIGNMENT == 0 for _, offset in placed)
        for value, (field, offset) in enumerate(placed, 1):
            payload.field(field, offset)[...] = value
        for value, (field, offset) in enumerate(placed, 1):
            array = payload.field(field, offset)
            assert array.shape == field.shape and array.nbytes == field_bytes(field) and (array == value).all()


@pytest.mark.parametrize(("offset", "length"), [(0, 101), (101, 0), (-1, 1), (50, 51), (0, -1), (1 << 62, 1 << 62)])
def test_views_stay_within_the_payload(offset, length):
    with Payload.create(100) as payload, pytest.raises(ProtocolError):
        payload.view(offset, length)


def test_a_payload_cannot_be_resized_by_anybody():
    with Payload.create(8192) as payload:
        for size in (0, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(payload.descriptor, size)


def memfd(size: int, seals: int) -> int:
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


@pytest.mark.parametrize(("make", "says"), [
    (lambda: os.open(os.devnull, os.O_RDWR), "no memfd"),
    (lambda: os.open("/proc/self/exe", os.O_RDONLY), "no memfd"),
    (lambda: memfd(4096, 0), "not sealed"),
    (lambda: memfd(4096, fcntl.F_SEAL_GROW), "not sealed"),
    (lambda: memfd(0, fcntl.F_SEAL_SHRINK), "empty"),
], ids=["device", "file", "unsealed", "sealed-against-growth-only", "empty"])
def test_a_descriptor_that_is_no_sealed_memfd_is_refused_and_closed(make, says):
    descriptor = make()
    with pytest.raises(ProtocolError, match=says):
        Payload.receive(descriptor)
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_a_private_mapping_is_not_seen_by_the_peer():
    with Payload.create(16) as payload:
        received = Payload.receive(os.dup(payload.descriptor), access=mmap.ACCESS_COPY)
        received.array[:] = 9
        assert not payload.array.any()
        received.close()


def test_memory_lives_as_long_as_its_views():
    payload = Payload.create(16)
    view = payload.view(0, 16)
    payload.close()
    view[:] = 3
    assert np.sum(view) == 48


def test_a_side_looks_for_input_for_a_while(pair, monkeypatch):
    sender, receiver = pair
    monkeypatch.setattr(wire, "are_free", lambda: True)
    started = time.monotonic()
    assert not receiver.poll(0.05) and 0.05 <= time.monotonic() - started < 5
    assert not receiver.poll(30, lambda: False) and time.monotonic() - started < 10
    silent, speaking = socket.socketpair()
    with silent, speaking:
        assert not receiver.poll(0.05, others=[silent])
        speaking.send(b"1")
        assert not receiver.poll(30, others=[silent]) and time.monotonic() - started < 10
    assert not receiver.poll(0.05, others=[silent])
    sender.send(Release(1, (2,)), Request)
    assert receiver.poll(30) and receiver.wait(30) and time.monotonic() - started < 10
    assert receiver.receive(Request)[0] == Release(1, (2,))
    assert not receiver.wait(0.01)
    monkeypatch.setattr(wire, "are_free", lambda: False)
    started = time.monotonic()
    assert not receiver.poll(30) and time.monotonic() - started < 10


@pytest.mark.parametrize(("own", "running", "waited", "looks"), [
    (14, 20, 0, True), (14, 63, 0, True), (14, 64, 0, False), (3, 1, 0, False), (14, 20, 0.5, False),
    (14, 20, 0.05, True)])
def test_processors_are_free_where_neither_others_nor_own_work_wants_them(own, running, waited, looks, monkeypatch):
    """Have ``own`` of 64 processors; within 1 s the thread waited for them for ``waited`` seconds."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(own)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(processors, "_running", lambda: running)
    monkeypatch.setattr(processors, "_waited", lambda: 7 + waited)
    monkeypatch.setattr(processors, "_last", last := processors._Look())
    last.at, last.waited = time.monotonic() - 1, 7
    assert processors.are_free() is looks
    monkeypatch.setattr(processors, "_running", lambda: sys.maxsize)
    last.at = time.monotonic() + 30
    assert processors.are_free() is looks        # which counts for a while


def test_threads_that_run_and_wait_are_counted():
    assert processors._running() >= 1 and 0 <= processors._waited() < time.monotonic()


def test_a_connection_that_was_closed_here_does_not_blame_the_peer():
    here, there = socket.socketpair()
    with there:
        connection = StreamConnection(here)
        here.close()
        for use in (lambda: connection.send(Done(1), AdminReply), lambda: connection.receive_as(bytes)):
            with pytest.raises(WorkerLost, match="closed here"):
                use()


def array(count: int) -> bytes:
    """Return the head of an array."""
    return b"\xdd" + count.to_bytes(4, "big")


def flood(unit: bytes) -> bytes:
    """Return a frame as long as may be, of arrays of one thing."""
    inner = array(100_000) + unit * 100_000
    count = MAX_FRAME // len(inner)
    return array(count) + inner * count


UNITS = [b"\x01", b"\x90", b"\x91\x01", b"\x92\x01\x02", b"\x91\x91\x91\x01", b"\xa1a", b"\xcb" + b"\1" * 8,
         b"\xa0", b"\xc4\1a", b"\x91" * 8 + b"\x01"]


@pytest.mark.parametrize("unit", UNITS, ids=[unit.hex() for unit in UNITS])
@pytest.mark.parametrize("start", [b"", b"\x92\x02\x92\x07", b"\x92\x00\x9e\1\1\1\xc4\0\xc4\0",
                                   b"\x92\x00\x9e\1\1\1\xc4\0\xc4\0\x90\x91\x94\xa3<f4"])
def test_a_flood_of_objects_is_refused_before_they_are_made(monkeypatch, unit, start):
    monkeypatch.setattr(codec.msgpack, "unpackb", None)
    skimmed, frame = FrameScan(start + flood(unit)), start + flood(unit)
    with pytest.raises(ProtocolError):
        skimmed.check(Request)
    assert skimmed.looked < 110_000
    with pytest.raises(ProtocolError):
        decode(frame, Request)


def test_long_messages_are_looked_over_and_taken():
    inputs = tuple(Input(index, 1 << 40, 0, 256 * index, b"x" * 300, (index % 3, 0), (-1,)) for index in range(20_000))
    plan = Plan((PutStep(), KeepStep(0, "x", "device")), (), (), inputs, ("cuda:0",))
    assert decode(encode(plan, Plan), Plan) == plan
    for request in (Release(1, tuple(range(100_000))), Release(1, (7,) * 100_000),
                    Run(1, 1, 0.5, b"k" * 16, b"p" * 100_000, (1, -5), (ArgumentValue("<f4", (2, 3), b"d" * 24, 0),))):
        assert decode(encode(request, Request), Request) == request


def test_objects_that_fit_are_counted(monkeypatch):
    monkeypatch.setattr("gpu_worker.protocol.frame_scan.MAX_OBJECTS", 50_000)
    with pytest.raises(ProtocolError, match="more than 50,000 objects"):
        decode(encode(Release(1, tuple(range(100_000))), Request), Request)
