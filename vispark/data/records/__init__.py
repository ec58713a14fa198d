"""Conversion of a partition's records to arrays in shared memory, and back.

Records are numbers, arrays, tuples of numbers, or dicts of numbers and arrays, or (key, value) pairs with such values.
All records of a partition are alike. Below two dimensions they are *elements*: stacked, one block for the partition.
From two on they are *blocks*: one block for each record.

``validation`` refuses what cannot be held, ``columns`` reads records, ``packing`` and ``unpacking`` are the two ways,
``layout`` is what the one tells the other, ``keys`` takes care of what stays on the host.
"""

from vispark.data.records.keys import Keyring, unpack_keys
from vispark.data.records.layout import RecordLayout, RecordPart
from vispark.data.records.packing import Packed, pack, pack_as
from vispark.data.records.rows import Rows
from vispark.data.records.unpacking import unpack

__all__ = ["Keyring", "Packed", "RecordLayout", "RecordPart", "Rows", "pack", "pack_as", "unpack", "unpack_keys"]
