"""Programs of PySpark's that were not used while ``vispark port`` was built: ``benchmarks/unseen_programs.toml``."""
