"""C++ for Python's statements and expressions."""
