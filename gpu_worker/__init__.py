"""The GPU worker: what runs on a node beside Spark and keeps the partitions.

One daemon per node (:mod:`gpu_worker.daemon`) and under it one device process per session
(:mod:`gpu_worker.server.device_process`). Nothing in this package imports pyspark.
"""
