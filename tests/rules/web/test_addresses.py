from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.rules.web.addresses import Networks, network_of, network_remedy

any_network = st.builds(
    lambda address, bits: ip_network((address, bits % (address.max_prefixlen + 1)), strict=False),
    st.ip_addresses(),
    st.integers(0, 128),
)


@given(st.lists(any_network, max_size=4), st.ip_addresses())
def test_networks_hold_what_the_standard_library_says(
    networks: list[object], address: object
) -> None:
    holds = Networks(map(str, networks)).holds(str(address))
    if str(address).startswith("::ffff:"):
        return  # an IPv4 address to us
    assert holds == any(address in network for network in networks)  # type: ignore[operator]


@given(any_network)
def test_a_network_holds_its_own_first_address(network: object) -> None:
    first = network.network_address  # type: ignore[attr-defined]
    if getattr(first, "ipv4_mapped", None) is None:
        assert Networks([str(network)]).holds(str(first))


def test_ipv4_written_as_ipv6_is_ipv4() -> None:
    assert Networks(["10.0.0.0/8"]).holds("::ffff:10.1.2.3")
    assert network_of("::ffff:10.1.2.3") == "10.1.2.3"


def test_what_is_no_address_is_in_no_network_and_kept_as_it_is() -> None:
    everything = Networks(["0.0.0.0/0", "::/0"])
    for text in ("", "testclient", "10.0.0", "10.0.0.1:80", "::g", "a\0b", "é"):
        assert not everything.holds(text)
        assert network_of(text) == text
    assert everything.holds("fe80::1%eth0")


def test_ipv6_callers_are_counted_by_their_network() -> None:
    assert network_of("2001:db8:1:2:3:4:5:6") == "2001:db8:1:2::/64"
    assert network_of("2001:0DB8:1:2::9%eth0") == "2001:db8:1:2::/64"
    assert network_of("10.0.0.1") == "10.0.0.1"


@given(st.ip_addresses(v=6), st.integers(16, 128))
def test_any_prefix_keeps_so_many_bits(address: object, prefix: int) -> None:
    if ip_address(str(address)).ipv4_mapped is None:  # type: ignore[union-attr]
        assert network_of(str(address), prefix) == str(
            ip_network((str(address), prefix), strict=False)
        )


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("10.0.0.0/8", ""),
        ("10.0.0.1", ""),
        ("::1", ""),
        ("10.0.0.1/8", "write 10.0.0.0/8"),
        ("10.0.0.0/33", "give an address or a network"),
        ("localhost", "give an address or a network"),
    ],
)
def test_a_network_that_is_none_is_told_what_to_do(text: str, remedy: str) -> None:
    assert remedy in network_remedy(text)
    assert bool(network_remedy(text)) == bool(remedy)
