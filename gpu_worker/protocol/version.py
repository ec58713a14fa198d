"""Version of the project, in this one place; its middle number is the version of the protocol.

Two sides of a socket understand each other where the middle numbers are the same.
"""

__version__ = "0.13.0"

#: Version of the protocol, which a change of messages, frames or payloads raises.
PROTOCOL = int(__version__.split(".")[1])
