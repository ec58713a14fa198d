"""Language that the translator accepts: its functions, and their parameters."""
