"""Where a server is, what it is shown, and to whom a token never goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from sluicegate.contracts.errors import (
    BadValue,
    Forbidden,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.doors.tls import Tls, TlsFiles
from sluicegate.rules.remote.admin import RemoteRuleAdmin
from tests.doors.http.rules.serving import RunningRulesDoor, rules_door_in_thread, token_of

TOKEN = "secret-secret-secret-secret"


@pytest.mark.parametrize(
    ("url", "more", "field"),
    [
        ("ftp://a", {}, "url"),
        ("rules.example", {}, "url"),
        ("", {}, "url"),
        ("http://", {}, "url"),
        ("http://a:b", {}, "url"),
        ("http://a:0", {}, "url"),
        ("http://a:99999", {}, "url"),
        ("http://[::1", {}, "url"),
        ("http://a b", {}, "url"),
        ("http://a\n/x", {}, "url"),
        ("http://ä.example", {}, "url"),
        ("http://127.0.0.1/x?y=1", {}, "url"),
        ("http://127.0.0.1/x#y", {}, "url"),
        ("unix:", {}, "url"),
        ("http://rules.example", {"token": TOKEN}, "url"),
        ("http://10.0.0.1", {"token": TOKEN}, "url"),
        ("http://127.0.0.1", {"token": "a b"}, "token"),
        ("http://127.0.0.1", {"token": "a\r\nx: y"}, "token"),
        ("http://127.0.0.1", {"token": "x" * 1_025}, "token"),
        ("http://127.0.0.1", {"ca": "ca.pem"}, "ca"),
        ("unix:/run/a", {"cert": "a", "key": "b"}, "cert"),
        ("https://a", {"cert": "a"}, "key"),
        ("https://a", {"key": "a"}, "cert"),
        ("https://a", {"ca": "/no/such/ca.pem"}, "ca"),
        ("https://a", {"cert": "/no/such", "key": "/no/such"}, "cert"),
        ("http://127.0.0.1", {"timeout_s": 0}, "timeout_s"),
        ("http://127.0.0.1", {"timeout_s": True}, "timeout_s"),
        ("http://127.0.0.1", {"answer_bytes_max": 0}, "answer_bytes_max"),
    ],
)
def test_what_cannot_be_a_place_is_refused(url: str, more: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue) as caught:
        RemoteRuleAdmin(url, **more)
    assert caught.value.field == field
    assert TOKEN not in str(caught.value)


def test_no_secret_is_shown() -> None:
    with pytest.raises(BadValue) as caught:
        RemoteRuleAdmin("https://ann:hunter2@rules.example")
    assert "hunter2" not in str(caught.value)
    admin = RemoteRuleAdmin("https://rules.example:7443/x", token=TOKEN)
    assert repr(admin) == "<RemoteRuleAdmin https://rules.example:7443/x>"
    assert TOKEN not in repr(admin._server)
    with pytest.raises(BadValue) as caught:
        RemoteRuleAdmin("http://127.0.0.1", token="ä" + TOKEN)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("http://localhost", {"token": TOKEN}),
        ("http://[::1]:7080", {"token": TOKEN}),
        ("http://rules.example", {}),
        ("http://rules.example", {"token": TOKEN, "insecure": True}),
        ("HTTPS://rules.example", {"token": TOKEN}),
    ],
)
def test_these_are_places(url: str, more: dict[str, Any]) -> None:
    assert RemoteRuleAdmin(url, **more).url == url


def test_an_empty_name_is_refused_without_asking() -> None:
    admin = RemoteRuleAdmin("http://127.0.0.1:1")
    for call in (admin.proposal, admin.publish, admin.file, admin.report):
        with pytest.raises(BadValue, match="say which"):
            call("")


class Secured:
    """A door with TLS, and what its callers need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_file = self._written("ca.pem", self.ca.cert_pem)
        issued = self.ca.issue_cert("127.0.0.1")
        self.cert = self._written("server.pem", issued.cert_chain_pems[0])
        self.key = self._written("server.key", issued.private_key_pem)
        self.door: RunningRulesDoor

    def _written(self, name: str, blob: trustme.Blob) -> str:
        blob.write_to_path(str(self.folder / name))
        return str(self.folder / name)

    def client(self, who: str, by: trustme.CA | None = None) -> dict[str, Any]:
        issued = (by or self.ca).issue_cert(f"{who}.example")
        return {
            "cert": self._written(f"{who}.pem", issued.cert_chain_pems[0]),
            "key": self._written(f"{who}.key", issued.private_key_pem),
        }

    @property
    def url(self) -> str:
        return f"https://{self.door.host}"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    here = Secured(tmp_path)
    files = TlsFiles(here.cert, here.key, here.ca_file, client_required=False)
    with rules_door_in_thread(tls=Tls(files)) as here.door:
        yield here


def test_over_tls_a_token_or_a_certificate_says_who_asks(secured: Secured) -> None:
    ca = secured.ca_file
    assert RemoteRuleAdmin(secured.url, ca=ca, token=token_of("rita")).rules()["version"] == 1
    paul = RemoteRuleAdmin(secured.url, ca=ca, **secured.client("paul"))
    assert paul.rules()["version"] == 1
    with pytest.raises(Forbidden) as caught:
        paul.roll_back("1", reason="r")
    assert (caught.value.who, caught.value.grant) == ("paul", "approve")
    with pytest.raises(Unauthenticated):
        RemoteRuleAdmin(secured.url, ca=ca).rules()


def test_a_server_that_nobody_we_trust_has_signed_is_not_spoken_to(secured: Secured) -> None:
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        RemoteRuleAdmin(secured.url, token=token_of("rita")).rules()
    other = f"https://localhost:{secured.door.port}"
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        RemoteRuleAdmin(other, ca=secured.ca_file, token=token_of("rita")).rules()
    assert secured.door.admin.calls == 0
    stranger = secured.client("paul", by=trustme.CA())
    with pytest.raises(SluicegateError):
        RemoteRuleAdmin(secured.url, ca=secured.ca_file, **stranger).rules()
    assert secured.door.admin.calls == 0


def test_a_key_that_is_not_the_certificates_is_refused(secured: Secured) -> None:
    mixed: dict[str, Any] = {
        "cert": secured.client("paul")["cert"],
        "key": secured.client("ada")["key"],
    }
    with pytest.raises(BadValue, match="its own key"):
        RemoteRuleAdmin(secured.url, ca=secured.ca_file, **mixed)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(secured: Secured) -> None:
    pair = secured.client("paul")
    key = load_pem_private_key(Path(pair["key"]).read_bytes(), None)
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a password")
    )
    Path(pair["key"]).write_bytes(locked)
    with pytest.raises(BadValue, match="the key has a password"):
        RemoteRuleAdmin(secured.url, ca=secured.ca_file, **pair)


def test_a_unix_socket_is_a_place_too(tmp_path: Path) -> None:
    path = tmp_path / "rules.sock"
    with rules_door_in_thread(address=f"unix:{path}"):
        admin = RemoteRuleAdmin(f"unix:{path}", token=token_of("bob"))
        assert admin.rules()["version"] == 1
        assert admin.propose({"shop.yaml": None}, base="live", message="m")["state"] == "open"
    with pytest.raises(Unavailable, match=r"rules\.sock"):
        admin.rules()
