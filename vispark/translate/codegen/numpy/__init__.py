"""C++ for NumPy's functions of arrays."""
