"""Logging in at an OpenID Connect provider: a real one, and one that lies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from sluicegate.apps.console.oidc import LoginRefused, OidcLogins, OidcSettings, identity_of
from sluicegate.apps.console.settings import ConsoleSettings, parse_group_grants
from sluicegate.contracts.access import Grant
from sluicegate.contracts.errors import BadValue
from sluicegate.service.settings import settings_from
from sluicegate.testing import HandClock
from tests.apps.console.process import ConsoleProcess
from tests.apps.console.provider import Reply, ask, console_at, log_in, provider

PEOPLE = (
    {"sub": "1", "email": "ann@shop.example", "groups": ["ops", "all"]},
    {"sub": "2", "email": "bob@shop.example", "groups": ["all"]},
    {"sub": "3", "email": "<script>eve@x", "groups": ["ops"], "email_verified": False},
)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("oidc")
    with provider(folder, PEOPLE) as issuer, console_at(folder, issuer) as running:
        yield running


def test_who_is_in_a_group_has_its_grants_until_they_log_out(console: ConsoleProcess) -> None:
    page = ask(console.url + "/nodes")
    assert (page.status, page.headers["Location"]) == (303, "/login?next=/nodes")
    assert "Log in at 127.0.0.1:" in ask(console.url + "/login?next=/nodes").text
    found = log_in(console, "1")
    assert found.status == 200, found.text
    assert '<a href="/nodes">Go on</a>' in found.text
    cookies = found.cookies()
    page = ask(console.url + "/nodes", cookies)
    assert page.status == 200
    assert "ann@shop.example" in page.text
    ask(console.url + "/logout", cookies, form="")
    assert ask(console.url + "/nodes", cookies).status == 303


@pytest.mark.parametrize(
    ("subject", "why"), [("2", "is in no group that may use"), ("3", "has not verified")]
)
def test_who_is_in_no_group_or_not_verified_is_nobody(
    console: ConsoleProcess, subject: str, why: str
) -> None:
    found = log_in(console, subject)
    assert found.status == 403
    assert why in found.text
    assert "sluicegate" not in found.cookies()
    assert "<script>eve" not in found.text


def test_a_login_ends_in_the_browser_in_which_it_was_begun_and_once(
    console: ConsoleProcess,
) -> None:
    begun = ask(console.url + "/login/oidc")
    back = ask(begun.headers["Location"], form="sub=1").headers["Location"]
    assert ask(back).status == 403  # another browser
    assert ask(back, begun.cookies()).status == 200  # which that did not end
    assert ask(back, begun.cookies()).status == 403  # the provider knows that the code was used
    begun = ask(console.url + "/login/oidc")
    denied = ask(begun.headers["Location"], form="action=deny").headers["Location"]
    assert ask(denied, begun.cookies()).status == 403
    assert ask(console.url + "/login/back?state=x&code=y", begun.cookies()).status == 403
    assert ask(console.url + "/login/back").status == 403


def test_logins_that_never_end_crowd_out_nobody(console: ConsoleProcess) -> None:
    begun = ask(console.url + "/login/oidc?next=/nodes")
    for _ in range(1_005):
        assert ask(console.url + "/login/oidc").status == 303
    back = ask(begun.headers["Location"], form="sub=1").headers["Location"]
    found = ask(back, begun.cookies())
    assert found.status == 200, found.text
    assert '<a href="/nodes">' in found.text


def test_login_cookie_of_a_long_path_fits_a_browser(console: ConsoleProcess) -> None:
    begun = ask(console.url + "/login/oidc?next=/" + "a" * 6_000)
    assert len(begun.headers["Set-Cookie"]) < 4_096
    back = ask(begun.headers["Location"], form="sub=1").headers["Location"]
    assert '<a href="/">Go on</a>' in ask(back, begun.cookies()).text


def test_where_one_wanted_to_go_is_a_page_of_ours(console: ConsoleProcess) -> None:
    assert '<a href="/">Go on</a>' in log_in(console, "1", "//evil.example/").text


class Liar:
    """A provider whose ID tokens are as `token` makes them of the right claims."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.token: Callable[[dict[str, Any]], str] = self.sign
        self.nonce = ""
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(liar.about() if "well-known" in self.path else liar.keys())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._say({"id_token": liar.token(liar.claims())})

            def _say(self, what: object) -> None:
                body = json.dumps(what).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def about(self) -> dict[str, str]:
        ends = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        return {"issuer": self.issuer} | {name: f"{self.issuer}/{name}" for name in ends}

    def keys(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [public | {"kid": kid, "use": "sig"} for kid in ("1", "2")]}

    def claims(self) -> dict[str, Any]:
        now = int(time.time())
        return {
            "iss": self.issuer, "aud": "console", "sub": "1", "iat": now, "exp": now + 60,
            "nonce": self.nonce, "email": "ann@shop.example", "groups": ["ops"],
        }  # fmt: skip

    def sign(self, claims: dict[str, Any], key: Any = None, algorithm: str = "RS256") -> str:
        return jwt.encode(claims, key or self.key, algorithm, {"kid": "1"})


@pytest.fixture(scope="module")
def liar() -> Iterator[Liar]:
    one = Liar()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture(scope="module")
def deceived(liar: Liar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with console_at(tmp_path_factory.mktemp("liar"), liar.issuer) as running:
        yield running


OTHER_KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
LIES: dict[str, Callable[[Liar, dict[str, Any]], str]] = {
    "another key": lambda liar, claims: liar.sign(claims, OTHER_KEY),
    "no signature": lambda _, claims: jwt.encode(claims, "", "none", {"kid": "1"}),
    "a secret instead of a key": lambda liar, claims: liar.sign(claims, "k" * 64, "HS256"),
    "another client": lambda liar, claims: liar.sign(claims | {"aud": "other"}),
    "for several, made for another": lambda liar, claims: liar.sign(
        claims | {"aud": ["console", "other"], "azp": "other"}
    ),
    "another issuer": lambda liar, claims: liar.sign(claims | {"iss": "http://x"}),
    "another login": lambda liar, claims: liar.sign(claims | {"nonce": "x"}),
    "long ago": lambda liar, claims: liar.sign(claims | {"exp": claims["exp"] - 600}),
    "not yet": lambda liar, claims: liar.sign(claims | {"nbf": claims["iat"] + 600}),
    "without an end": lambda liar, claims: liar.sign(
        {name: value for name, value in claims.items() if name != "exp"}
    ),
    "no name of a key": lambda liar, claims: jwt.encode(claims, liar.key, "RS256"),
    "no token at all": lambda *_: "x",
}


def test_an_id_token_counts_only_if_all_of_it_is_right(
    deceived: ConsoleProcess, liar: Liar
) -> None:
    def come_back() -> Reply:
        begun = ask(deceived.url + "/login/oidc")
        asked = parse_qs(urlsplit(begun.headers["Location"]).query)
        assert asked["code_challenge_method"] == ["S256"]
        liar.nonce = asked["nonce"][0]
        return ask(f"{deceived.url}/login/back?code=c&state={asked['state'][0]}", begun.cookies())

    found = come_back()
    assert found.status == 200, found.text  # the right one does
    for name, lie in LIES.items():
        liar.token = lambda claims, lie=lie: lie(liar, claims)  # type: ignore[misc]
        found = come_back()
        assert found.status == 403, f"{name}: {found.text}"
        assert "sluicegate" not in found.cookies()


def test_a_provider_that_is_away_is_told_and_nobody_is_let_in(tmp_path: Path) -> None:
    with console_at(tmp_path, "http://127.0.0.1:1") as console:
        found = ask(console.url + "/login/oidc")
        assert found.status == 502
        assert "127.0.0.1:1 is unavailable" in found.text


def settings(**grants: frozenset[Grant]) -> OidcSettings:
    return OidcSettings("https://id", "console", "", "https://console", "email", "groups", grants)


def test_groups_add_up_and_a_star_is_everybody() -> None:
    both = settings(ops=frozenset({Grant.AUDIT}), boss=frozenset({Grant.APPROVE}))
    claims = {"sub": "1", "email": "ann@x", "groups": ["ops", "boss", 7]}
    assert identity_of(claims, both).grants == {Grant.AUDIT, Grant.APPROVE}
    assert identity_of({"sub": "1", "groups": "ops"}, both).name == "1"
    anybody = settings(**{"*": frozenset({Grant.AUDIT})})
    assert identity_of({"sub": "1"}, anybody).grants == {Grant.AUDIT}
    with pytest.raises(LoginRefused, match="no group"):
        identity_of({"sub": "1"}, both)


@pytest.mark.parametrize("text", ["ops", "=audit", "ops=", "ops=audit,all"])
def test_grants_that_cannot_be_read_are_told(text: str) -> None:
    with pytest.raises(BadValue, match="GROUP=GRANT"):
        parse_group_grants(text, "--oidc-grants")


RIGHT = (
    "--oidc-issuer=https://id", "--oidc-client=c", "--oidc-url=https://c", "--oidc-grants=a=audit",
    "--token=0123456789abcdef0123",
)  # fmt: skip


@pytest.mark.parametrize("left_out", range(1, len(RIGHT)))
def test_settings_that_do_not_go_together_are_refused(left_out: int) -> None:
    def read(flags: list[str]) -> ConsoleSettings:
        words = [word for flag in flags for word in flag.split("=", 1)]
        found = settings_from(ConsoleSettings, *words)
        found.check()
        return found

    assert read([*RIGHT]).oidc_client == "c"
    with pytest.raises(BadValue, match="oidc"):
        read([flag for at, flag in enumerate(RIGHT) if at != left_out])
    with pytest.raises(BadValue, match="https"):
        read(["--oidc-issuer=http://id.example", *RIGHT[1:]])


def test_unreadable_authorities_name_the_flag(tmp_path: Path) -> None:
    settings = OidcSettings(
        "https://id", "console", "", "https://console", "email", "groups", {},
        ca=str(tmp_path / "missing.pem"),
    )  # fmt: skip
    with pytest.raises(BadValue, match=r"^--ca: .* it cannot be read: .*No such file"):
        OidcLogins(settings, HandClock())
