"""Protocol between clients and workers: errors, messages, frames and payloads. See docs/protocol.md."""
