"""``python -m gpu_worker`` is ``gpu-worker``."""

from gpu_worker.cli import main

if __name__ == "__main__":
    main(prog_name="gpu-worker")
