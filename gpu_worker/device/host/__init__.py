"""CUDA C++ on the CPU: the headers and the runtime (C++), and the compiler that joins them with a user's source."""
