"""The intermediate form of a function: nodes, types, values, and where its errors point."""
