"""An authority that nobody else knows, and a certificate for 127.0.0.1 that it has signed.

Made by the `openssl` program, which needs no package and takes some 30 ms. They are for one run:
nothing here may be kept, or trusted outside the test that made it.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.engines.child import EngineFailedError
from tests.engines.need import Program

OPENSSL = Program("openssl", "apt-get install -y openssl")
OPENSSL_S_MAX = 30
DAYS = "2"

CONFIG = """\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True)
class Certificates:
    """The three files that a server needs, of which a client needs the first."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Write an authority and a server's certificate into the folder, each with its key."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "openssl.cnf"
    config.write_text(CONFIG)
    authority, authority_key = folder / "authority.crt", folder / "authority.key"
    made = Certificates(authority, folder / "server.crt", folder / "server.key")
    _sign(config, "authority", authority, authority_key)
    _sign(config, "server", made.certificate, made.key, by=(authority, authority_key))
    return made


def _sign(
    config: Path, section: str, certificate: Path, key: Path, by: tuple[Path, Path] | None = None
) -> None:
    command: list[str | Path] = ["openssl", "req", "-x509", "-config", config]
    command += ["-extensions", section, "-days", DAYS]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", f"/CN=sluicegate test {section}", "-out", certificate, "-keyout", key]
    if by is not None:
        command += ["-CA", by[0], "-CAkey", by[1]]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=OPENSSL_S_MAX, check=False
    )
    if run.returncode:
        raise EngineFailedError(f"openssl could not make {certificate.name}: {run.stderr.strip()}")
