"""TLS: who is at the other end, what is agreed on, and certificates that change meanwhile."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.listener import Language
from sluicegate.doors.sniff import PREFACE
from sluicegate.doors.tls import Tls, TlsFiles, names_in
from tests.doors.listening import LOOPS, Caller, Hall, hall, run, until

both = pytest.mark.parametrize("loop", sorted(LOOPS))
RESP = b"*1\r\n$4\r\nPING\r\n"


class Authority:
    """Signs servers and clients, and writes what a listener reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.cert, self.key = folder / "server.crt", folder / "server.key"
        self.client_ca = folder / "clients.crt"
        self.ca.cert_pem.write_to_path(str(self.client_ca))
        self.issue("first.example")

    def issue(self, name: str) -> None:
        """Write a new pair in place of the old one, each file by a rename."""
        issued = self.ca.issue_cert("127.0.0.1", common_name=name)
        for path, pems in (
            (self.cert, issued.cert_chain_pems),
            (self.key, [issued.private_key_pem]),
        ):
            new = path.with_suffix(".new")
            new.write_bytes(b"".join(pem.bytes() for pem in pems))
            new.replace(path)

    def files(self, **more: Any) -> TlsFiles:
        return TlsFiles(str(self.cert), str(self.key), **more)

    def client(
        self, *alpn: str, common_name: str = "", sans: tuple[str, ...] = (), by: Any = None
    ) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        if sans:
            issued = (by or self.ca).issue_cert(*sans, common_name=common_name)
            issued.configure_cert(context)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def call(here: Hall, context: ssl.SSLContext, text: bytes = b"") -> Caller:
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=context)
    writer.write(text)
    return Caller(reader, writer)


def subject_seen(port: int, context: ssl.SSLContext) -> str:
    """The common name that the server shows to a plain, blocking client."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        return names_in(secured.getpeercert())[0]


@both
def test_what_was_agreed_on_decides_and_without_it_the_first_bytes_do(
    loop: str, authority: Authority
) -> None:
    async def story() -> None:
        async with hall(tls=Tls(authority.files())) as here:
            for alpn, text, kind in (
                (("h2",), PREFACE, "HTTP2"),
                (("h2", "http/1.1"), b"GET / HTTP/1.1\r\n\r\n", "HTTP1"),
                (("http/1.1",), b"GET / HTTP/1.1\r\n\r\n", "HTTP1"),
                (("http/1.1",), b"FOO", "HTTP1"),
                (("h2",), b"not the preface", "HTTP2"),
                ((), RESP, "RESP"),
                ((), PREFACE, "HTTP2"),
                ((), b"GET / HTTP/1.1\r\n\r\n", "HTTP1"),
            ):
                caller = await call(here, authority.client(*alpn), text)
                await caller.hears(f"{kind}:".encode() + text)
                await caller.leave()
            peers = [echo.peer for echo in here.made]
            assert all(peer.tls for peer in peers)
            agreed = ["h2", "http/1.1", "http/1.1", "http/1.1", "h2", "", "", ""]
            assert [peer.alpn for peer in peers] == agreed
            assert {peer.names for peer in peers} == {()}

    run(story, loop)


@both
def test_only_what_is_served_is_offered(loop: str, authority: Authority) -> None:
    async def story() -> None:
        async with hall(kinds=[Language.HTTP1, Language.RESP], tls=Tls(authority.files())) as here:
            for offered in (("h2", "http/1.1"), ("h2",)):
                caller = await call(here, authority.client(*offered), b"GET / HTTP/1.1\r\n")
                agreed = caller.writer.get_extra_info("ssl_object").selected_alpn_protocol()
                assert agreed == ("http/1.1" if "http/1.1" in offered else None)
                await caller.hears(b"HTTP1:")
                await caller.leave()

    run(story, loop)


@both
def test_a_client_certificate_tells_its_names_and_no_other_gets_in(
    loop: str, authority: Authority
) -> None:
    stranger = trustme.CA()

    async def story() -> None:
        tls = Tls(authority.files(client_ca=str(authority.client_ca)))
        async with hall(tls=tls) as here:
            gateway = authority.client(common_name="gateway", sans=("gate.example", "10.0.0.7"))
            caller = await call(here, gateway, RESP)
            await caller.hears(b"RESP:" + RESP)
            peer = here.made[0].peer
            assert peer.names[0] == "gateway"
            assert "gate.example" in peer.names
            assert "10.0.0.7" not in peer.names
            await caller.leave()
            for context in (
                authority.client(),
                authority.client(common_name="gateway", sans=("gate.example",), by=stranger),
            ):
                # In TLS 1.3 the client learns of its refusal when it first reads.
                try:
                    refused = await call(here, context, RESP)
                    assert await refused.rest() == b""
                    await refused.leave()
                except (OSError, ssl.SSLError):
                    pass
            await until(lambda: here.listener.stats().open == 0)
            assert len(here.made) == 1
            assert here.listener.stats().tls_failures == 2

    run(story, loop)


@both
def test_an_optional_client_certificate_is_told_where_it_is_shown(
    loop: str, authority: Authority
) -> None:
    async def story() -> None:
        files = authority.files(client_ca=str(authority.client_ca), client_required=False)
        async with hall(tls=Tls(files)) as here:
            own_caller = await call(
                here, authority.client(sans=("me.example",), common_name="me"), RESP
            )
            await own_caller.hears(b"RESP:")
            bare = await call(here, authority.client(), RESP)
            await bare.hears(b"RESP:")
            assert [echo.peer.names for echo in here.made] == [("me", "me.example"), ()]
            await own_caller.leave()
            await bare.leave()

    run(story, loop)


def test_a_certificates_names_are_its_common_name_and_its_dns_and_uri_names() -> None:
    certificate = {
        "subject": ((("organizationName", "o"),), (("commonName", "cn"),)),
        "subjectAltName": (
            ("DNS", "a.example"),
            ("URI", "spiffe://mesh/a"),
            ("IP Address", "10.0.0.1"),
            ("email", "a@b"),
            ("DirName", ((("commonName", "x"),),)),
            ("DNS", "cn"),
        ),
    }
    assert names_in(certificate) == ("cn", "a.example", "spiffe://mesh/a")
    assert names_in({}) == names_in(None) == ()


@both
def test_a_new_certificate_is_for_new_connections_and_old_ones_go_on(
    loop: str, authority: Authority
) -> None:
    async def story() -> None:
        tls = Tls(authority.files())
        async with hall(tls=tls) as here:
            context = authority.client()
            old = await call(here, context, RESP)
            await old.hears(b"RESP:" + RESP)
            subject = await asyncio.to_thread(subject_seen, here.port, context)
            assert subject == "first.example"
            authority.issue("second.example")
            tls.reload()
            subject = await asyncio.to_thread(subject_seen, here.port, context)
            assert subject == "second.example"
            old.writer.write(b"still")
            await old.hears(b"still")
            await old.leave()
            assert here.listener.stats().tls_reloads == 1

    run(story, loop)


def test_the_files_are_looked_at_while_it_listens(authority: Authority) -> None:
    async def story() -> None:
        async with hall(tls=Tls(authority.files())) as here:
            authority.issue("second.example")
            await until(lambda: here.listener.stats().tls_reloads == 1)
            context = authority.client()
            subject = await asyncio.to_thread(subject_seen, here.port, context)
            assert subject == "second.example"

    run(story)


def test_a_pair_that_is_rewritten_within_one_tick_of_the_files_clock_is_taken(
    authority: Authority, tmp_path: Path
) -> None:
    pair = {path: tmp_path / f"own-{path.name}" for path in (authority.cert, authority.key)}

    def rewrite() -> None:
        """Write in place, at one size and instant: all that a file says of itself is the same."""
        for issued, own in pair.items():
            own.write_bytes(issued.read_bytes().ljust(16_384, b"\n"))
            os.utime(own, ns=(0, 0))

    rewrite()
    certificate, key = map(str, pair.values())
    tls = Tls(TlsFiles(certificate, key))
    assert not tls.look()
    for name in ("one.example", "two.example"):
        authority.issue(name)
        rewrite()
        assert tls.look()
    assert not tls.look()
    assert tls.reloads == 2


def test_a_bad_pair_never_replaces_a_good_one_and_is_looked_at_again(authority: Authority) -> None:
    tls = Tls(authority.files())
    good, cert, key = tls.context, authority.cert.read_bytes(), authority.key.read_bytes()
    assert not tls.look()

    authority.cert.write_bytes(b"garbage")
    assert not tls.look()
    assert tls.failures == 1
    assert not tls.look()
    assert tls.failures == 1, "looked at once until it changes again"
    with pytest.raises(BadValue, match="tls_cert"):
        tls.reload()
    assert tls.context is good
    assert "tls_cert" in tls.last_error

    authority.issue("second.example")
    new_key = authority.key.read_bytes()
    authority.key.write_bytes(key)  # one half of the new pair, and one of the old
    assert not tls.look()
    assert tls.context is good
    authority.key.write_bytes(new_key)
    assert tls.look()
    assert tls.context is not good
    assert tls.last_error == ""

    better = tls.context
    authority.cert.unlink()
    assert not tls.look()
    assert tls.context is better
    assert cert


def test_a_file_that_cannot_be_used_is_named_with_what_would_be_right(
    authority: Authority, tmp_path: Path
) -> None:
    with pytest.raises(BadValue, match=r"tls_cert: .*No such file"):
        Tls(TlsFiles(str(tmp_path / "none"), str(authority.key)))
    with pytest.raises(BadValue, match=r"tls_key: .*No such file"):
        Tls(TlsFiles(str(authority.cert), str(tmp_path / "none")))
    with pytest.raises(BadValue, match=r"tls_key: ''"):
        Tls(TlsFiles(str(authority.cert), ""))
    with pytest.raises(BadValue, match=r"tls_client_ca: .*PEM certificates of authorities"):
        Tls(authority.files(client_ca=str(authority.key)))
    locked = tmp_path / "locked.key"
    subprocess.run(
        [
            "openssl",
            "pkey",
            "-in",
            authority.key,
            "-aes256",
            "-passout",
            "pass:abcd",
            "-out",
            locked,
        ],
        check=True,
    )
    with pytest.raises(BadValue, match="its own key without a password"):
        Tls(TlsFiles(str(authority.cert), str(locked)))
    big = tmp_path / "big"
    big.write_bytes(b"")
    os.truncate(big, 2**21)
    with pytest.raises(BadValue, match="at most 1,048,576 bytes"):
        Tls(authority.files(client_ca=str(big)))


def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    tls = Tls(authority.files())
    assert tls.context.minimum_version == ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in tls.context.get_ciphers()}
    assert all(
        ("CBC" not in name and "SHA384" in name) or "SHA256" in name or "POLY" in name
        for name in names
    )

    async def story() -> None:
        async with hall(tls=tls) as here:
            context = authority.client()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            caller = await call(here, context, RESP)
            await caller.hears(b"RESP:")
            await caller.leave()

    run(story)


@both
def test_who_does_not_finish_the_handshake_is_cut_and_counted_meanwhile(
    loop: str, authority: Authority
) -> None:
    async def story() -> None:
        bounds = {"tls_handshake_timeout_s": 0.2, "connections_max": 1, "connections_reserved": 0}
        async with hall(tls=Tls(authority.files()), **bounds) as here:
            silent = await here.call()
            await until(lambda: here.listener.stats().open == 1)
            beyond = await here.call()
            assert await beyond.rest() == b""
            assert here.listener.stats().refused_full == 1
            assert await silent.rest() == b""
            await until(lambda: here.listener.stats().open == 0)
            plain = await here.call(b"GET / HTTP/1.1\r\n\r\n")
            await plain.rest()
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.stats().tls_failures == 2
            assert not here.made
            for caller in (silent, beyond, plain):
                await caller.leave()

    run(story, loop)


@both
def test_closing_ends_handshakes_too(loop: str, authority: Authority) -> None:
    async def story() -> None:
        async with hall(tls=Tls(authority.files())) as here:
            silent = await here.call(b"\x16\x03")
            await until(lambda: here.listener.stats().open == 1)
            await here.listener.close(0.05)
            assert await silent.rest() == b""
            await silent.leave()

    run(story, loop)
