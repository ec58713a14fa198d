"""Which functions the language has, and their parameters."""
