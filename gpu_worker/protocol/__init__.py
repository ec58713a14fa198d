"""What clients and workers say to each other: errors, messages, frames and payloads. See docs/protocol.md."""
