"""Protocol between clients and workers: errors, messages, frames and payloads. See docs/reference/protocol.md."""
