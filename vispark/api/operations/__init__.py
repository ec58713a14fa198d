"""Operations of a VRDD that its records stay on devices for: kernels, functions, joins, stencils; and tables of them.

Place 2 of 8 in ``vispark.api``; run by: driver.
"""
