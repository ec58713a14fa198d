"""Public interface: VRDD, Grid, explain, and the methods added to PySpark's RDD."""
