"""Addresses: what hides inside another is found, and what is harmless is let through."""

from __future__ import annotations

import pytest

from sluicegate.apps.images.addresses import AddressRules

REFUSED = (
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.9.9",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "not-an-address",
)
ALLOWED = ("8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8")


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_that_is_not_of_the_public_internet_is_refused(address: str) -> None:
    assert AddressRules().refuse_address(address, 443)


@pytest.mark.parametrize("address", ALLOWED)
def test_a_public_address_is_asked(address: str) -> None:
    assert AddressRules().refuse_address(address, 443) == ""


def test_a_network_of_the_setting_is_an_exception_and_only_that_network() -> None:
    rules = AddressRules(networks=["127.0.0.1/32", "fd00::/8"])
    assert rules.refuse_address("127.0.0.1", 12_345) == ""
    assert rules.refuse_address("fd00::7", 80) == ""
    assert rules.refuse_address("127.0.0.2", 80)
    assert rules.refuse_address("::ffff:127.0.0.1", 80)


def test_a_port_that_is_not_of_the_setting_is_refused() -> None:
    assert AddressRules().refuse_address("8.8.8.8", 6379)
    assert AddressRules(ports=[6379]).refuse_address("8.8.8.8", 6379) == ""


def test_hosts_of_the_setting_are_the_only_ones() -> None:
    rules = AddressRules(hosts=["img.example.com", ".cdn.example.net"])
    assert rules.refuse_host("IMG.example.com.") == ""
    assert rules.refuse_host("a.b.cdn.example.net") == ""
    assert rules.refuse_host("cdn.example.net.evil.org")
    assert rules.refuse_host("evilcdn.example.net")
    assert AddressRules().refuse_host("anything") == ""
