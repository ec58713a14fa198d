"""Plans on their way to workers, and cached data kept alive: in the driver, and in Spark's tasks (``executor``)."""
