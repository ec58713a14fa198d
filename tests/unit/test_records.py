"""Records to shared memory and back: forms, refusals, layouts, keys."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import math
import mmap
import os
import pickle
import struct
from itertools import islice

import numpy as np
import pytest

from gpu_worker.protocol.errors import PlanError, ProtocolError, RecordError, Unauthorized
from gpu_worker.protocol.messages import Field, Signature
from gpu_worker.protocol.payload import Payload, aligned, block_bytes, field_offsets
from vispark.data.records import Keyring, RecordLayout, RecordPart, pack, unpack, unpack_keys

RING = Keyring(b"the secret of one session")
NUMERIC = [np.dtype(char) for char in "?bhilqBHILQefdgFDG"]


def blocks_of(payload, signatures, offset):
    for signature in signatures:
        yield {field.name: payload.field(field, start) for field, start in field_offsets(signature, offset)}
        offset += block_bytes(signature)


def transfer(records, offset=512):
    """Return the records that come back from a payload that a peer received, and its layout."""
    packed = pack(iter(records), seal=RING.seal)
    with Payload.create(offset + packed.nbytes) as sent:
        packed.write(sent, offset)
        received = Payload.receive(os.dup(sent.descriptor), mmap.ACCESS_COPY)
    with received:
        keys = received.view(offset, len(packed.keys)).tobytes()
        blocks = list(blocks_of(received, packed.signatures, offset + aligned(len(keys))))
    layout = RecordLayout.decode(packed.layout.encode())
    assert layout == packed.layout and hash(layout) == hash(packed.layout)
    return list(unpack(layout, packed.count, keys, blocks, open=RING.open)), packed


def bits(number):
    """Return a number's type and the bits that count of it; 80-bit floats are padded with bytes that do not."""
    array = np.asarray(number)
    raw = np.frombuffer(array.tobytes(), np.uint8)
    if array.dtype.char in "gG":
        raw = raw.reshape(-1, 16)[:, :10]
    return array.dtype, array.shape, raw.tobytes()


def same(back, sent):
    """Return whether a record came back as it was: types, dtypes, order of fields, and bits."""
    if isinstance(sent, np.ndarray):
        return type(back) is np.ndarray and bits(back) == bits(sent) and back.flags.writeable \
            and back.flags.c_contiguous
    if type(back) is not type(sent):
        return False
    if isinstance(sent, tuple):
        return len(back) == len(sent) and all(map(same, back, sent))
    if isinstance(sent, dict):
        return list(back) == list(sent) and all(map(same, back.values(), sent.values()))
    return bits(back) == bits(sent) if isinstance(sent, float | complex | np.generic) else back == sent


def check(records, kind):
    back, packed = transfer(records)
    assert len(back) == len(records) and all(map(same, back, records)), (back, records)
    assert packed.layout.kind == kind
    return packed


QUIET = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF))[0]


class TestElements:
    @pytest.mark.parametrize("records", [
        [1, -2, 2**63 - 1, -2**63], [0.0, -0.0, QUIET, -math.inf], [True, False], [1j, complex(-0.0, QUIET)], [7],
    ], ids=["int", "float", "bool", "complex", "one"])
    def test_python_numbers(self, records):
        packed = check(records, "elements")
        assert packed.signatures == [Signature((Field("", packed.layout.parts[0].dtype.str, (len(records),)),))]

    @pytest.mark.parametrize("dtype", NUMERIC, ids=str)
    def test_numpy_scalars_and_arrays_of_every_dtype(self, dtype):
        values = np.array([0, 1, 1, 0]).astype(dtype)
        scalars = [np.dtype(dtype.str).type(value) for value in values]
        check(scalars, "elements")
        check([np.array(value) for value in scalars], "elements")
        check([values, values[::-1]], "elements")
        check([values.reshape(2, 2), values.reshape(4, 1)], "blocks")

    @pytest.mark.parametrize("dtype", [">f2", ">i4", ">f8", ">c16", ">u8"])
    def test_big_endian_comes_back_so_and_travels_native(self, dtype):
        values = np.arange(6).astype(dtype)
        for records in ([values, values[::-1]], [values.reshape(2, 3)], [np.array(3, dtype), np.array(4, dtype)],
                        [{"a": values, "b": values.reshape(3, 2)}]):
            packed = pack(records, seal=RING.seal)
            assert all(np.dtype(field.dtype).isnative for each in packed.signatures for field in each.fields)
            back, _ = transfer(records)
            assert all(map(same, back, records))

    def test_nan_payloads_and_signed_zeros(self):
        for dtype, pattern in (("f2", 0x7E55), ("f4", 0x7FC0BEEF), ("f4", 0x7F80BEEF), ("f8", 0x7FF0_0000_0000_0123)):
            value = np.array([pattern], f"u{dtype[1]}").view(dtype)
            check([value, -value], "elements")
            check([value[0], value[0]], "elements")
            check([value.astype(value.dtype.newbyteorder(">")).reshape(1, 1)], "blocks")

    def test_rows_stack_into_one_block(self):
        rows = [np.arange(5, dtype="f4") + i for i in range(3)]
        packed = check(rows, "elements")
        assert packed.signatures == [Signature((Field("", "<f4", (3, 5)),))]
        assert packed.nbytes == 256

    def test_rows_however_they_lie_in_memory(self, tmp_path):
        whole = np.arange(24.0).reshape(4, 6)
        frozen = np.arange(4.0)
        frozen.flags.writeable = False
        mapped = np.memmap(tmp_path / "m", np.float64, "w+", shape=4)
        odd = np.frombuffer(b"\0" + np.arange(4.0).tobytes(), np.float64, offset=1)
        check([whole[:, 2], whole[0, 1:5], whole[3, 3::-1], frozen, mapped, odd], "elements")

    def test_zero_size_rows(self):
        check([np.empty(0, "f4")] * 3, "elements")

    @pytest.mark.parametrize("records", [
        [(1, 2, 3), (4, 5, 6)], [(1.5,), (-0.0,)], [(True, 2, 3.5), (False, 2**53, QUIET)],
        [(np.float32(1), np.float32(2), np.float32(3))], [(1, 2.0, True, 3j)], [(np.int8(1), np.float16(2), 3)],
        [(np.uint64(2**63), 0.5, np.longdouble(1) / 3)], [(2**60, 1.0, 1)], [(np.longlong(1), np.int64(2), 3)],
    ], ids=str)
    def test_tuples(self, records):
        back, packed = transfer(records)
        assert [[number.dtype if hasattr(number, "dtype") else type(number) for number in row] for row in back] == \
            [[number.dtype if hasattr(number, "dtype") else type(number) for number in row] for row in records]
        assert all(bits(b)[2] == bits(g)[2] for row, given in zip(back, records, strict=True)
                   for b, g in zip(row, given, strict=True))
        assert packed.signatures[0].fields[0].shape == (len(records), len(records[0]))

    @pytest.mark.parametrize("records", [
        [(i, np.arange(3.0) + i, 0.5 * i) for i in range(4)], [(np.zeros(2, "f4"),) * 3, (np.ones(2, "f4"),) * 3],
        [(True, np.arange(2), np.float32(3), 1j)], [(0, np.zeros(0), 1)]], ids=str)
    def test_tuples_with_rows_are_held_item_by_item(self, records):
        packed = check(records, "elements")
        assert packed.layout.tupled and packed.layout.sent
        assert [field.name for field in packed.signatures[0].fields] == list(map(str, range(len(records[0]))))

    def test_fields(self):
        records = [{"y": float(i), "x": np.arange(3, dtype="i2") * i, "n": np.uint8(i)} for i in range(4)]
        packed = check(records, "elements")
        assert packed.signatures == [Signature((Field("y", "<f8", (4,)), Field("x", "<i2", (4, 3)),
                                                Field("n", "|u1", (4,))))]

    def test_fields_take_the_order_of_the_first(self):
        back, _ = transfer([{"a": 1, "b": 2.0}, {"b": 3.0, "a": 4}])
        assert back == [{"a": 1, "b": 2.0}, {"a": 4, "b": 3.0}]

    def test_many_records(self):
        check([float(i) for i in range(10_000)], "elements")
        check([(i, 0.5, True) for i in range(10_000)], "elements")

    def test_empty_partition(self):
        packed = check([], "elements")
        assert (packed.signatures, packed.nbytes, packed.keys, packed.count) == ([], 0, b"", 0)
        assert unpack_keys(b"", 0, open=RING.open) == []


class TestBlocks:
    def test_ragged(self):
        packed = check([np.ones((2, 3)), np.zeros((0, 3)), np.ones((4, 1))], "blocks")
        assert [each.fields[0].shape for each in packed.signatures] == [(2, 3), (0, 3), (4, 1)]

    def test_however_they_lie_in_memory(self, tmp_path):
        whole = np.arange(120.0).reshape(4, 5, 6)
        mapped = np.memmap(tmp_path / "m", np.float64, "w+", shape=(2, 2, 2))
        mapped.flags.writeable = False
        check([np.asfortranarray(whole), whole[::2, :, ::-1], whole.transpose(2, 0, 1), mapped], "blocks")

    def test_a_field_of_two_dimensions_makes_blocks(self):
        records = [{"m": np.ones((i, 2)), "v": np.arange(i), "s": i, "z": np.array(i, "f4")} for i in range(3)]
        packed = check(records, "blocks")
        assert packed.signatures[2] == Signature((Field("m", "<f8", (2, 2)), Field("v", "<i8", (2,)),
                                                  Field("s", "<i8", ()), Field("z", "<f4", ())))

    def test_arrays_of_two_records_do_not_overlap(self):
        for records in ([np.zeros(3), np.zeros(3)], [np.zeros((2, 2)), np.zeros((2, 2))]):
            (first, second), _ = transfer(records)
            first[...] = 1
            assert not second.any()

    def test_read_only_blocks_are_copied(self):
        array = np.arange(6.0).reshape(2, 3)
        array.flags.writeable = False
        for kind, blocks in (("elements", [{"": array}]), ("blocks", [{"": array}, {"": array}])):
            layout = RecordLayout(kind, False, (RecordPart("", "array", ("<f8",)),))
            for back in unpack(layout, 2, b"", blocks, open=RING.open):
                back += 1
        assert array[0, 0] == 0

    def test_blocks_in_another_order_are_copied(self):
        array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        layout = RecordLayout("blocks", False, (RecordPart("", "array", ("<f8",)),))
        assert same(*unpack(layout, 1, b"", [{"": array}], open=RING.open), array)

    def test_writable_blocks_are_not(self):
        array = np.zeros((2, 3))
        layout = RecordLayout("elements", False, (RecordPart("", "array", ("<f8",)),))
        assert all(np.shares_memory(row, array) for row in unpack(layout, 2, b"", [{"": array}], open=RING.open))


class NamedRecord:
    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return type(other) is NamedRecord and self.name == other.name

    __hash__ = None

    def __repr__(self):
        return f"NamedRecord({self.name})"


class TestPairs:
    @pytest.mark.parametrize("keys, tag", [
        (["a", "ü\0", ""], b"m"), ([b"a", b""], b"m"), ([True, 1, 1.0, None], b"m"),
        ([("a", (1, (True, b"x"))), (), (None,)], b"m"), ([2**63 - 1, 2**64 - 1, -2**63], b"m"), ([-0.0, QUIET], b"n"),
        ([2**64, -2**63 - 1], b"p"), (["\ud800"], b"p"), ([np.int64(3), np.float32(2)], b"p"),
        ([np.int64(3), np.int64(-4)], b"n"), ([3, -4], b"n"), ([np.bool_(True)], b"a"), ([np.str_("x")], b"p"),
        ([[1], {2: 3}, NamedRecord("x")], b"p"),
        ([frozenset({1}), datetime.date(2020, 1, 1), decimal.Decimal("1.10")], b"p"),
        ([bytearray(b"x"), collections.namedtuple("Point", "x y")(1, 2)], b"p"), (["a", NamedRecord("b")], b"p"),
    ], ids=str)
    def test_keys(self, keys, tag):
        records = [(key, float(index)) for index, key in enumerate(keys)]
        back, packed = transfer(records)
        assert RING.open(packed.keys)[:1] == tag
        assert [value for _, value in back] == [value for _, value in records]
        assert repr(unpack_keys(packed.keys, len(keys), open=RING.open)) == repr(keys)
        for (returned, _), key in zip(back, keys, strict=True):
            assert type(returned) is type(key)
            assert bits(returned) == bits(key) if type(key) is float else returned == key

    def test_deeply_nested_keys(self):
        key = ()
        for _ in range(700):
            key = (key,)
        back, _ = transfer([(key, 1)])
        assert back == [(key, 1)]

    @pytest.mark.parametrize("value", [1, 2.5, np.float32(3), np.arange(3), np.ones((2, 2)), (1, 2.0, 3),
                                       {"a": 1, "b": np.ones((1, 1))}], ids=repr)
    def test_values_of_every_form(self, value):
        back, packed = transfer([("k", value), ("l", value)])
        assert packed.layout.keyed and [key for key, _ in back] == ["k", "l"]
        assert all(same(found, value) for _, found in back)

    def test_a_tuple_of_two_is_a_pair(self):
        packed = check([(1.0, 2.0), (3.0, 4.0)], "elements")
        assert packed.layout.keyed and packed.signatures[0].fields[0].shape == (2,)

    def test_values_alone(self):
        packed = pack([("a", 1), ("b", 2)], seal=RING.seal)
        layout = packed.layout.values()
        assert list(unpack(layout, 2, b"", [{"": np.array([5, 6])}], open=RING.open)) == [5, 6]

    def test_keys_that_do_not_pickle(self):
        with pytest.raises(RecordError, match="key of record 1 is of type generator"):
            pack([("a", 1), ((x for x in ()), 2)], seal=RING.seal)

    def test_foreign_blobs_are_never_read(self):
        class Bomb:
            def __reduce__(self):
                return os.abort, ()

        blob = b"p" + pickle.dumps([Bomb()])
        for forged in (blob, bytes(32) + blob, Keyring(RING.auth).seal(blob), Keyring(b"another").seal(blob), b""):
            with pytest.raises(Unauthorized, match=r"not sealed by this session|none but the session that made them"):
                unpack_keys(forged, 1, open=RING.open)

    def test_keys_of_another_count_or_version(self):
        packed = pack([("a", 1)], seal=RING.seal)
        with pytest.raises(ProtocolError, match="2 records has 1 keys"):
            unpack_keys(packed.keys, 2, open=RING.open)
        with pytest.raises(ProtocolError, match="neither"):
            unpack_keys(RING.seal(b"x"), 1, open=RING.open)

    def test_keyring(self):
        again = Keyring(b"the secret of one session")
        assert again.open(RING.seal(b"blob")) == b"blob" and again.auth == RING.auth and len(RING.auth) == 32
        assert RING.auth != Keyring(b"another").auth
        sealed = bytearray(RING.seal(b"blob"))
        for position in range(len(sealed)):
            changed = bytes(sealed[:position]) + bytes([sealed[position] ^ 1]) + bytes(sealed[position + 1:])
            with pytest.raises(Unauthorized):
                RING.open(changed)
        with pytest.raises(ValueError, match="empty"):
            Keyring(b"")


POINT = collections.namedtuple("Point", "x y z")
ROW = np.zeros(3)

class Own(np.ndarray):
    pass


ALONE = [
    ([1], "a list; np.asarray it, or make it a tuple"), ("text", "a str; text can be a key"),
    (b"text", "a bytes; text"),
    (None, "None; leave out"), (decimal.Decimal(1), "a Decimal; convert it with float"), ({1, 2}, "a set; make it an"),
    (fractions.Fraction(1, 2), "a Fraction; convert it"), pytest.param(object(), "an object; a record is", id="object"),
    ((), "a tuple of 0; a row"),
    ({}, "a dict of no fields; a record has at least one"), (np.array(["a"]), "array of <U1; use a numeric"),
    (np.array([None]), "array of object; use a numeric"), (np.array([b"a"]), "1-D array of .S1"),
    (np.array(["2020"], "M8[D]"), r"array of datetime64\[D\]; convert it with .astype\('int64'\)"),
    (np.datetime64("2020"), "a NumPy datetime64; convert it"), (np.timedelta64(1), "a NumPy timedelta64"),
    (np.zeros(2, "i4,f4"), "use a dict with an array"), (np.zeros((), "i4,f4")[()], "a NumPy void"),
    (np.str_("x"), "a NumPy str_; text"), (np.ma.array([1.0], mask=[True]), "a MaskedArray; fill what is masked"),
    (np.zeros(2).view(Own), "an Own; np.asarray it"), (POINT(1, 2, 3), "a Point; use a plain tuple"),
    (collections.OrderedDict(a=1), "an OrderedDict; make it a plain dict"),
]

SECOND = [
    (1, 2.0, "an? float, but record 0 is an int"), (1.0, 1, "an int, but record 0 is a float"),
    (1, True, "a bool, but record 0 is an int"), (1.0, np.float64(1), "a NumPy float64, but record 0 is a float"),
    (np.float32(1), np.float64(1), "a NumPy float64"), (1.0, np.array(1.0), "a 0-D array of float64"),
    (ROW, 1.0, "a float, but record 0 is a 1-D array"), (ROW, np.zeros(3, "f4"), "1-D array of float32"),
    (ROW, np.zeros(3, ">f8"), "1-D array of >f8"), (np.zeros((2, 2)), ROW, "a 1-D array of float64, but .* a 2-D"),
    (ROW, np.array(1.0), "a 0-D array"), (ROW, [1.0], "a list; np.asarray it"), (ROW, None, "None; leave out"),
    (ROW, np.ma.array([1.0, 2, 3]), "a MaskedArray; fill"), (ROW, np.array([None] * 3), "object; use a numeric"),
    (ROW, (1, 2, 3), "a tuple of 3, but record 0 is a 1-D array"),
    ((1, 2, 3), ROW, "a 1-D array.*but .* a tuple of 3"),
    ((1, 2, 3), (1, 2.0, 3), "position 1 of record 1 is a float"), ((1, 2, 3), ("a", 1), r"a \(key, value\) pair, but"),
    (1.0, ("a", 1.0), r"a \(key, value\) pair, but record 0 is a float"),
    (("a", 1), 1, "an int, but record 0 is a .key"),
    (("a", 1), (1, 2, 3), "a tuple of 3, but record 0 is a .key"), (1.0, "text", "a str; text"),
    ((1, 2, 3), POINT(1, 2, 3), "a Point; use a plain tuple"), ({"a": 1}, {"b": 1}, "a dict of 'b', but .* of 'a'"),
    ({"a": 1}, {"a": 1, "b": 2}, "of 'a', 'b', but"), ({"a": 1}, {"a": 1.0}, "field 'a' of record 1 is a float"),
    ({"a": 1}, {"a": None}, "field 'a' of record 1 is None; leave"), ({"a": 1}, 1, "an int, but record 0 is a dict"),
    (1, {"a": 1}, "a dict of 'a', but record 0 is an int"),
    ({"a": 1}, {"a": {"b": 1}}, "a field is a number or an array"),
    ((1, 2, 3), (1, 2, 3, 4), "has length 4, but record 0 has length 3"), ((1, 2, 3), (), "has length 0"),
    (1, 2**63, "an int of 64 bits, outside of int64"),
    ((1, 2, 3), (1, -2**63 - 1, 3), "position 1 of record 1 is an int of 64 bits"),
    ((1, 0.5, 3), (2**53 + 1, 0.5, 3), "position 0 of record 1 is 9007199254740993, which float64"),
    ((0, 0.5, np.uint64(0)), (0, 0.5, np.uint64(2**64 - 1)), "position 2 of record 1 is 18446744073709551615"),
    ((1, 0.5, 3), (1, 0.5, 2**64), "position 2 of record 1 is an int of 65 bits"),
]


class TestRefused:
    @pytest.mark.parametrize("record, message", ALONE, ids=repr)
    def test_alone(self, record, message):
        with pytest.raises(RecordError, match=r"^record 0 is ") as error:
            pack([record], seal=RING.seal)
        assert error.match(message)
        with pytest.raises(RecordError, match=f"^the value of record 0 is .*{message}"):
            pack([("key", record)], seal=RING.seal)

    @pytest.mark.parametrize("first, second, message", SECOND, ids=repr)
    def test_beside_others(self, first, second, message):
        with pytest.raises(RecordError, match="record 1 ") as error:
            pack([first, second, first], seal=RING.seal)
        assert error.match(message)

    @pytest.mark.parametrize("record, message", [
        (((1, 2), 3, 4), "position 0 of record 0 is a .key, value. pair; a row holds numbers"),
        ((1, "a", 3), "position 1 of record 0 is a str"), ((1, None, 3), "position 1 of record 0 is None"),
        ((1, np.zeros((2, 2)), 3), "position 1 of record 0 is a 2-D array of float64; a tuple holds numbers and rows"),
        ((np.array(1), np.array(2), np.array(3)), "0-D array of int64; a row holds numbers"),
        ({"a": {"b": 1}}, "field 'a' of record 0 is a dict of 'b'; a field is a number or an array"),
        ({"a": (1, 2, 3)}, "field 'a' of record 0 is a tuple of 3; a field is a number"),
        ({"a": [1]}, "field 'a' of record 0 is a list; np.asarray it"), ({1: 2.0}, "the key 1; fields must have names"),
        ({"": 2.0}, "the key ''; fields must"), (2**63, "record 0 is an int of 64 bits"),
    ], ids=repr)
    def test_inside(self, record, message):
        with pytest.raises(RecordError, match=message):
            pack([record], seal=RING.seal)

    def test_a_pair_as_value(self):
        with pytest.raises(RecordError, match=r"the value of record 0 is a \(key, value\) pair; .* np.asarray it"):
            pack([("a", (1, 2))], seal=RING.seal)

    def test_reads_the_iterator_once(self):
        records = iter([1, 2, 3, 4])
        assert pack(islice(records, 3), seal=RING.seal).count == 3 and next(records) == 4

    def test_survives_the_way_through_spark(self):
        with pytest.raises(RecordError) as error:
            pack([None], seal=RING.seal)
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def layout_of(records):
    return pack(records, seal=RING.seal).layout


def after(records, *outputs, merge=False, as_input=False):
    return layout_of(records).after(outputs, merge=merge, as_input=as_input)


class TestLayout:
    def test_is_independent_of_the_data_size(self):
        assert layout_of([np.zeros(3)] * 2) == layout_of([np.ones(5)] * 7)
        assert layout_of([np.zeros((3, 4))]) == layout_of([np.ones((5, 1))] * 2)
        assert layout_of([(1, 2, 3)]) == layout_of([(1,)] * 2)
        assert len({layout_of([1.0]), layout_of([np.float64(1)]), layout_of([ROW])}) == 3

    def test_is_small(self):
        assert len(layout_of([tuple(range(784))]).encode()) < 64
        assert len(layout_of([("k", {"x": ROW, "y": 1.0})]).encode()) < 64

    @pytest.mark.parametrize("data", [
        b"", b"x", RecordLayout("grid", False, ()).encode(),
                                      RecordLayout("blocks", False, (RecordPart("", "list", ("int",)),)).encode(),
        RecordLayout("blocks", False, (RecordPart("", "array", ("O",)),)).encode(),
        RecordLayout("blocks", False, (RecordPart("", "array", ("nonsense",)),)).encode(),
        RecordLayout("blocks", False, (RecordPart("", "array", ()),)).encode(),
        RecordLayout("blocks", False, (RecordPart("a", "array", ("<f4",)),) * 2).encode(),
    ])
    def test_what_is_no_layout(self, data):
        with pytest.raises(ProtocolError):
            RecordLayout.decode(data)

    def test_after_a_kernel_without_out(self):
        for records in ([1.0], [ROW], [(1, 2, 3)], [{"a": 1, "b": np.ones((2, 2))}], [("k", np.zeros(2, ">f4"))]):
            output = Field("", "<f8", (1,))
            assert after(records, output, as_input=True) == layout_of(records)
        mixed = after([(1, 2.0, True)], Field("", "<f8", (1, 3)), as_input=True)
        assert list(unpack(mixed, 1, b"", [{"": np.array([[0.5, 1, 2]])}], open=RING.open)) == [(0.5, 1.0, 2.0)]
        narrow = after([(np.int8(1), np.float16(2), np.int8(3))], Field("", "<f2", (1, 3)), as_input=True)
        assert narrow.parts == (RecordPart("", "tuple", ("<f2",)),)

    def test_after_a_kernel_with_out(self):
        one = Field("", "f4", (1,))
        assert after([1.0], one).parts == (RecordPart("", "number", ("<f4",)),)
        assert after([(1, 2, 3)], Field("", "f4", (1, 3))).parts == (RecordPart("", "array", ("<f4",)),)
        assert after([1.0], Field("", "f4", (1, 3, 4))) == RecordLayout("elements", False,
                                                                        (RecordPart("", "array", ("<f4",)),))
        assert after([("k", np.ones((2, 2)))], one) == RecordLayout("blocks", True,
                                                                    (RecordPart("", "array", ("<f4",)),))
        assert after([np.ones((2, 2))], Field("", "f4", ())) == RecordLayout("blocks", False,
                                                                             (RecordPart("", "number", ("<f4",)),))

    def test_after_a_kernel_that_writes_fields(self):
        records = [{"x": ROW, "y": 1.0}]
        y, z = Field("y", "f4", (1,)), Field("z", "i4", (1, 2))
        kept = after(records, y, z, merge=True)
        assert kept.parts == (RecordPart("x", "array", ("<f8",)), RecordPart("y", "number", ("<f4",)),
                              RecordPart("z", "array", ("<i4",)))
        assert after(records, y).parts == (RecordPart("y", "number", ("<f4",)),)
        assert not after(records, Field("", "f4", (1,)), merge=True).named
        assert after([1.0], y, merge=True).named
        with pytest.raises(PlanError, match="without a name"):
            after(records, y, Field("", "f4", (1,)))

    def test_results_of_a_kernel(self):
        layout = after([np.ones((2, 2))] * 2, Field("m", "f4", (2,)), Field("s", "i8", ()))
        blocks = [{"m": np.zeros(2, "f4"), "s": np.array(i)} for i in range(2)]
        back = list(unpack(layout, 2, b"", blocks, open=RING.open))
        assert all(map(same, back, [{"m": np.zeros(2, "f4"), "s": np.int64(i)} for i in range(2)]))

    def test_blocks_that_do_not_fit(self):
        layout = layout_of([ROW])
        for count, blocks, message in [
            (3, [], "has 0 blocks, not 1"), (3, [{"x": ROW}], r"not in a block with \['x'\]"),
            (3, [{"": np.zeros(3, "f4")}], "is of float32, not float64"), (2, [{"": ROW}], r"shape \(3,\), not 2 rec"),
        ]:
            with pytest.raises(ProtocolError, match=message):
                unpack(layout, count, b"", blocks, open=RING.open)
