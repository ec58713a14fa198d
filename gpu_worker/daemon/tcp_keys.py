"""Generator of a session's key pair: ``python -m gpu_worker.daemon.tcp_keys`` writes it to its standard output.

It is a process of its own, so that the library is loaded only where a session spans nodes, and never by the daemon.
"""

from __future__ import annotations

import datetime
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gpu_worker.protocol.codec import encode
from gpu_worker.protocol.control import KeyPair

#: Clocks of nodes differ, and nobody looks at the dates: the certificate is trusted for what it is.
_YEARS = datetime.timedelta(days=3650)


def make_pair() -> KeyPair:
    """Return a new key on the curve P-256, and a certificate that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vispark")])
    now = datetime.datetime.now(datetime.UTC)
    builder = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
               .serial_number(x509.random_serial_number()).not_valid_before(now - _YEARS).not_valid_after(now + _YEARS))
    certificate = builder.sign(key, hashes.SHA256())
    return KeyPair(certificate.public_bytes(Encoding.DER),
                   key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


if __name__ == "__main__":
    sys.stdout.buffer.write(encode(make_pair(), KeyPair))
