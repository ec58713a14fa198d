"""Where a program's time goes: plans, Spark's jobs, and the shares of both."""
