"""``python -m vispark.migrate`` is ``vispark``."""

from vispark.migrate.cli import main

if __name__ == "__main__":
    main(prog_name="vispark")
