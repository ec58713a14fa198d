"""What a program recorded: frozen operations, the calls that they stand for, and CUDA sources."""
