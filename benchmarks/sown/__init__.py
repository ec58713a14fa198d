"""Programs of PySpark alone that errors are sown into, as files that are read and never imported."""
