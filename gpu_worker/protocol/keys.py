"""Blobs of pairs' keys, as far as workers read them."""

#: Byte behind the tag of keys that are numbers of one type: its name, a semicolon, and the numbers.
NUMBERS = b"n"

#: What the name of the array ends with that says where the items of rows of several lengths lie.
STARTS = "#"
