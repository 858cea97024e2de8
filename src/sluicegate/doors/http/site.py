"""Site: keeps web pages of others from driving us through a browser.

A page may send requests to any address that its browser can reach, loopback included, and a name
that its owner turns to our address (DNS rebinding) makes us look like its own site. So a request
must name one of our hosts, and one that changes something must not come from another site's page.
Tools and services send no Origin; what is said here is only for browsers.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from sluicegate.doors.binding import Address, is_private
from sluicegate.doors.http.message import HttpReply, HttpRequest, problem

# Any address in digits: no page's owner can turn that to us, so a probe may call us by it.
DIGITS: Final = "#"
_OWN_SITE: Final = (b"", b"none", b"same-origin")
NOT_OUR_NAME: Final = problem(
    421,
    "Misdirected Request",
    "the Host header names none of the hosts that are ours; --hosts names others",
)
ANOTHER_SITE: Final = problem(403, "Forbidden", "what the page of another site sends is refused")


def hosts_of(
    addresses: Iterable[Address], names: Iterable[str] = (), *, secret: bool
) -> frozenset[str] | None:
    """The Host values that name a listener: its own, and `names`; None is any.

    Any where others can reach it, no names are given, and it asks for a `secret`: no page of others
    knows that, and a load balancer calls it by whatever name. Without a secret it is called by its
    own names, those of loopback, and by any address in digits.
    """
    configured = frozenset(name.lower() for name in names)
    hosts: set[str] = set(configured)
    for address in addresses:
        if not (configured or is_private(address)):
            if secret:
                return None
            hosts.add(DIGITS)
        if address.path:
            hosts.add("localhost")
            continue
        for host in (address.host, "localhost", "127.0.0.1", "::1"):
            whole = str(Address(host, address.port))
            hosts.add(whole)
            if address.port in (80, 443):
                hosts.add(whole.rpartition(":")[0])
    return frozenset(hosts)


def other_host(request: HttpRequest, hosts: frozenset[str] | None) -> HttpReply | None:
    """The refusal of a request for another host."""
    if hosts is None:
        return None
    host = request.header(b"host").decode("latin-1").lower()
    return None if host in hosts or (DIGITS in hosts and _in_digits(host)) else NOT_OUR_NAME


def _in_digits(host: str) -> bool:
    bare, _, port = host.rpartition(":")
    if host.endswith("]") or not port.isdecimal():
        bare = host
    try:
        ip_address(bare.strip("[]"))
    except ValueError:
        return False
    return True


def other_site(request: HttpRequest) -> HttpReply | None:
    """The refusal of a request that another site's page has sent."""
    if request.header(b"sec-fetch-site") not in _OWN_SITE:
        return ANOTHER_SITE
    return None if own_origin(request) or not request.header(b"origin") else ANOTHER_SITE


def own_origin(request: HttpRequest) -> bool:
    """Whether the page's own server is the one that it calls."""
    host = request.header(b"host").decode("latin-1").lower()
    scheme = "https" if request.peer.tls else "http"
    origin = request.header(b"origin").decode("latin-1").lower()
    return bool(host) and origin == f"{scheme}://{host}"
