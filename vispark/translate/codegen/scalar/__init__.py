"""C++ for scalars: types, casts, operators, lines and loops."""
