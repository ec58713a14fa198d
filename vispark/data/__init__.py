"""Data of a program on the host: stores of files, grids, records, and tables of columns.

``storage`` reads and writes files wherever they lie, ``grid`` cuts cells into blocks, ``records`` turns a partition's
records into arrays and back, ``tables`` does so with columns of DataFrames and files.

Place 2 of 8 in the order of the data; run by: driver, task.
"""
