"""A time-stamp authority of one's own: OpenSSL's, behind a server on this machine."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

OPENSSL = shutil.which("openssl")
_CONFIG = """
[tsa]
default_tsa = me
[me]
serial = {folder}/serial
crypto_device = builtin
signer_cert = {folder}/signer.pem
signer_key = {folder}/signer.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
ess_cert_id_chain = no
ess_cert_id_alg = sha256
"""


def _certificate(name: str, key: ec.EllipticCurvePrivateKey, issuer: tuple[str, ec.EllipticCurvePrivateKey]) -> bytes:
    now = datetime.now(timezone.utc)
    is_root = issuer[0] == name
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer[0])]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key()), critical=False)
    )
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    usage |= {"digital_signature": True, "key_cert_sign": is_root, "crl_sign": is_root, "decipher_only": False}
    made = made.add_extension(x509.KeyUsage(**usage), critical=True)
    if not is_root:
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True)
    return made.sign(issuer[1], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def root_certificate() -> bytes:
    """Return the certificate of a root, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _certificate("root", key, ("root", key))


@contextmanager
def authority(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the address of an authority, and the file of its root certificate."""
    root, signer = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "root.pem").write_bytes(_certificate("root", root, ("root", root)))
    (folder / "signer.pem").write_bytes(_certificate("authority", signer, ("root", root)))
    form = serialization
    pem = signer.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    (folder / "signer.key").write_bytes(pem)
    (folder / "serial").write_text("01\n", encoding="utf-8")
    (folder / "config").write_text(_CONFIG.format(folder=folder), encoding="utf-8")

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            (folder / "asked").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            line = [str(OPENSSL), "ts", "-reply", "-config", "config", "-section", "me", "-queryfile", "asked"]
            subprocess.run([*line, "-out", "said"], cwd=folder, check=True, capture_output=True)
            self.send_response(200)
            self.end_headers()
            self.wfile.write((folder / "said").read_bytes())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("no_proxy", "NO_PROXY"):
                patch.setenv(name, "127.0.0.1")  # whoever runs the tests may be behind a proxy
            yield f"http://127.0.0.1:{server.server_port}/", folder / "root.pem"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
