"""Tables of named columns as records: DataFrames and files of columns, by Arrow batches.

``types`` says which columns hold numbers, ``selection`` which columns become which fields, ``batches`` turns a batch
of columns into arrays; ``dataframe`` and the readers of files make RDDs of them.
"""
