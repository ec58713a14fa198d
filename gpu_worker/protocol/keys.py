"""Blobs of pairs' keys, as far as workers read them."""

#: Byte behind the tag of keys that are numbers of one type: its name, a semicolon, and the numbers.
NUMBERS = b"n"

#: What the name of the array ends with that says where the items of rows of several lengths lie.
STARTS = "#"
#: The same of the places of a sparse vector's items.
PLACES = "@"


def of_value(name: str) -> str:
    """Return the name that a value's field has in the pair with its key, which is the field ``0``.

    Examples
    --------
    >>> of_value(""), of_value("x"), of_value("#")
    ('1', '1.x', '1#')
    """
    return f"1{name}" if name in ("", STARTS, PLACES) else f"1.{name}"
