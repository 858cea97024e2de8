from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.proxies import Proxies, address_in, proxies_of

PEER = "10.0.0.1"
CLIENT = "203.0.113.7"
FORGED = "198.51.100.66"


def test_without_trusted_proxies_the_header_says_nothing() -> None:
    assert Proxies(0).client(PEER, [CLIENT]) == PEER


def test_one_proxy_writes_the_last_entry() -> None:
    assert Proxies(1).client(PEER, [CLIENT]) == CLIENT
    assert Proxies(1).client(PEER, [f"{FORGED}, {CLIENT}"]) == CLIENT


def test_two_proxies_make_the_second_from_the_right_the_client() -> None:
    assert Proxies(2).client(PEER, [f"{FORGED}, {CLIENT}, 10.0.0.2"]) == CLIENT


def test_several_lines_are_one_list() -> None:
    assert Proxies(2).client(PEER, [FORGED, CLIENT, "10.0.0.2"]) == CLIENT
    assert Proxies(2).client(PEER, [f"{FORGED},{CLIENT}", "10.0.0.2"]) == CLIENT
    assert Proxies(3).client(PEER, [f"{FORGED}, {CLIENT}", "10.0.0.3, 10.0.0.2"]) == CLIENT


@pytest.mark.parametrize("lines", [[], [""], [CLIENT]])
def test_a_list_shorter_than_the_proxies_is_not_believed(lines: list[str]) -> None:
    assert Proxies(2).client(PEER, lines) == PEER


@pytest.mark.parametrize(
    "written",
    [
        f"{CLIENT}:4711",
        f"  {CLIENT}  ",
        f"::ffff:{CLIENT}",
        f"[::ffff:{CLIENT}]:443",
    ],
)
def test_an_address_has_one_spelling_whatever_stands_around_it(written: str) -> None:
    assert Proxies(1).client(PEER, [written]) == CLIENT


@pytest.mark.parametrize(
    "junk",
    [
        "unknown",
        "",
        " ",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.4:port",
        "1.2.3.4:",
        "1.2.3.4:123456",
        "[::1",
        "[::1]x",
        "[]:80",
        "::1::2",
        "evil\r\nx: y",
        "1" * 10_000,
        "\u0661.2.3.4",
        "1.2.3.4:\u0661",
    ],
)
def test_junk_where_the_address_should_be_leaves_the_peer(junk: str) -> None:
    assert address_in(junk, 64) == ""
    assert Proxies(1).client(PEER, [junk]) == PEER
    assert Proxies(1).client(PEER, [f"{FORGED}, {junk}"]) == PEER


def test_an_ipv6_client_is_its_network_so_that_it_cannot_walk_through_a_billion_addresses() -> None:
    one, other = "2001:db8:1:2:aaaa::1", "[2001:DB8:1:2:bbbb::2]:443"
    assert Proxies(1).client(PEER, [one]) == Proxies(1).client(PEER, [other]) == "2001:db8:1:2::"
    assert Proxies(0).client("2001:db8:1:2:aaaa::1") == "2001:db8:1:2::"
    assert Proxies(0, ipv6_prefix=128).client("2001:db8::1%eth0") == "2001:db8::1"
    assert Proxies(0, ipv6_prefix=48).client("2001:db8:1:2::1") == "2001:db8:1::"


def test_an_ipv4_peer_on_an_ipv6_socket_is_that_ipv4_address() -> None:
    assert Proxies(0).client(f"::ffff:{CLIENT}") == CLIENT


def test_a_unix_socket_has_no_address_of_its_own_but_its_proxy_knows_one() -> None:
    assert Proxies(0).client("") == ""
    assert Proxies(1).client("", [CLIENT]) == CLIENT


@pytest.mark.parametrize(
    ("lines", "trusted", "client"),
    [
        ([f"for={CLIENT}"], 1, CLIENT),
        ([f'For="{CLIENT}:8080";proto=https;by=10.0.0.1'], 1, CLIENT),
        (['for="[2001:db8:1:2::17]:4711"'], 1, "2001:db8:1:2::"),
        ([f"for={FORGED}, for={CLIENT};by=10.0.0.2 , for=10.0.0.2"], 2, CLIENT),
        ([f"for={FORGED}", f"proto=http;for={CLIENT}"], 1, CLIENT),
        ([f'for={CLIENT};ext="a,b;for=1.1.1.1"'], 1, CLIENT),
        (["for=unknown"], 1, PEER),
        (["for=_hidden"], 1, PEER),
        (["proto=https"], 1, PEER),
        (["for"], 1, PEER),
        ([f"for={CLIENT}"], 2, PEER),
    ],
)
def test_the_standard_header_is_read_by_option(lines: list[str], trusted: int, client: str) -> None:
    assert Proxies(trusted, header="Forwarded").client(PEER, lines) == client


@pytest.mark.parametrize(
    "evil", ['for="', 'for="\\', '"', f'for={FORGED};x="', ",,,", 'for="a,b', '\\"', '"\\']
)
def test_a_quote_that_a_client_leaves_open_cannot_swallow_what_the_proxy_wrote(evil: str) -> None:
    proxies = Proxies(1, header="forwarded")
    assert proxies.client(PEER, [f"{evil}, for={CLIENT}"]) == CLIENT
    assert proxies.client(PEER, [evil, f'for="{CLIENT}:80"']) == CLIENT


ANYTHING = st.lists(st.text(max_size=30), max_size=4)
ADDRESSES = st.ip_addresses().map(str)


@given(ANYTHING, st.lists(ADDRESSES, min_size=1, max_size=4), st.booleans())
def test_nothing_that_a_client_writes_changes_what_its_address_is(
    forged: list[str], written: list[str], standard: bool
) -> None:
    """`written` is what our proxies add: first the client's address, then each other's."""
    header = "forwarded" if standard else "x-forwarded-for"
    proxies = Proxies(len(written), header=header, ipv6_prefix=128)
    if standard:
        ours = [f'for="[{one}]"' if ":" in one else f"for={one}" for one in written]
    else:
        ours = written
    client = ipaddress.ip_address(written[0])
    mapped = getattr(client, "ipv4_mapped", None)
    truth = str(mapped or client)
    one_line = ", ".join([*forged, *ours])
    assert proxies.client(PEER, [one_line]) == truth
    assert proxies.client(PEER, [*forged, *ours]) == truth
    assert proxies.client(PEER, [", ".join([*forged, ours[0]]), *ours[1:]]) == truth


@given(st.text(), st.integers(1, 128))
def test_no_text_at_all_is_an_error(text: str, prefix: int) -> None:
    address = address_in(text, prefix)
    assert not address or str(ipaddress.ip_address(address)) == address
    for header in ("forwarded", "x-forwarded-for"):
        Proxies(3, header=header).client(PEER, [text, text])


@pytest.mark.parametrize("trusted", [-1, 33, True])
def test_a_wrong_number_of_proxies_is_told_at_once(trusted: int) -> None:
    with pytest.raises(BadValue, match="number of your proxies"):
        proxies_of(trusted)


def test_a_wrong_header_or_prefix_is_told_at_once() -> None:
    with pytest.raises(BadValue, match="forwarded"):
        Proxies(1, header="x-real-ip")
    with pytest.raises(BadValue, match="1 to 128"):
        Proxies(ipv6_prefix=0)
