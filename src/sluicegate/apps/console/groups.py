"""Groups of an OpenID Connect provider: what settings say of them. Light to import."""

from __future__ import annotations

from urllib.parse import urlsplit

from sluicegate.contracts.access import Grant
from sluicegate.contracts.errors import BadValue


def parse_group_grants(text: str, where: str) -> tuple[str, frozenset[Grant]]:
    """Return the group and the grants of `GROUP=GRANT,GRANT`."""
    group, equals, names = text.rpartition("=")
    known = {grant.value: grant for grant in Grant}
    grants = [name.strip() for name in names.split(",")]
    if not (group and equals) or not all(name in known for name in grants):
        remedy = f"write it as GROUP=GRANT,GRANT, of {', '.join(known)}"
        raise BadValue(where, text, remedy)
    return group, frozenset(known[name] for name in grants)


def check_provider_url(url: str, where: str) -> None:
    """Raise for one over which others could read or change what is said."""
    at = urlsplit(url)
    if at.scheme == "https" and at.hostname:
        return
    if at.scheme == "http" and at.hostname in ("127.0.0.1", "::1", "localhost"):
        return
    raise BadValue(where, url, "give an https:// URL, or one of loopback to try it")
