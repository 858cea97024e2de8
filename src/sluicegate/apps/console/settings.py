"""Settings of the console: which services it asks, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from sluicegate.command_line.service_client import check_url
from sluicegate.contracts.access import Grant
from sluicegate.contracts.errors import BadValue
from sluicegate.service.common_settings import ADDRESS, ServiceSettings
from sluicegate.service.settings import Setting, SettingType, seconds, whole

LISTEN_DEFAULT: Final = "127.0.0.1:7050"
SERVICES_DEFAULT: Final = ("http://127.0.0.1:7070", "http://127.0.0.1:7080")
NODES_MAX: Final = 10_000
DNS: Final = "dns+"  # before the URL of a name that stands for a service at each of its addresses


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
    """Reject a URL over which others could read or change the messages."""
    at = urlsplit(url)
    if at.scheme == "https" and at.hostname:
        return
    if at.scheme == "http" and at.hostname in ("127.0.0.1", "::1", "localhost"):
        return
    raise BadValue(where, url, "give an https:// URL, or one of loopback to try it")


def parse_services_url(text: str, where: str) -> str:
    """Return the URL of a service, or of a name that stands for several."""
    url = text.removeprefix(DNS)
    check_url(url, where, SERVICES_DEFAULT[0])
    if url != text and urlsplit(url).port is None:
        raise BadValue(where, text, f"write it with a port, as {DNS}https://limiter.internal:7070")
    return text.rstrip("/")


def _parse_grants(text: str, where: str) -> str:
    parse_group_grants(text, where)
    return text


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(ServiceSettings):
    """The console."""

    VARIABLES: ClassVar[str] = "SLUICEGATE_CONSOLE_"
    listen: Annotated[tuple[str, ...], Setting("where browsers find it", ADDRESS)] = (
        LISTEN_DEFAULT,
    )
    services: Annotated[
        tuple[str, ...],
        Setting(
            "a service to show; dns+http://NAME:PORT is one at each address that the name has",
            SettingType(parse_services_url, "URL"),
        ),
    ] = SERVICES_DEFAULT
    services_token: Annotated[
        str,
        Setting(
            "the token it shows to them, with the grant audit; better in the variable",
            metavar="TOKEN",
            secret=True,
        ),
    ] = ""
    ca: Annotated[
        str,
        Setting(
            "authorities of the certificates of services, rulebook and provider, PEM",
            metavar="FILE",
        ),
    ] = ""
    every_s: Annotated[
        float, Setting("seconds between looks at each service", seconds(0.2, 60))
    ] = 1.0
    timeout_s: Annotated[
        float, Setting("a service that does not answer for so long is gone", seconds(0.1, 60))
    ] = 2.0
    session_s: Annotated[
        int, Setting("seconds after which people log in again", whole(60, 604_800, "SECONDS"))
    ] = 28_800

    oidc_issuer: Annotated[
        str,
        Setting("an OpenID Connect provider at which people may log in", metavar="URL"),
    ] = ""
    oidc_client: Annotated[
        str, Setting("what the console is called there, its client id", metavar="ID")
    ] = ""
    oidc_secret: Annotated[
        str,
        Setting(
            "its secret there, if it has one; better in the variable", metavar="SECRET", secret=True
        ),
    ] = ""
    oidc_url: Annotated[
        str,
        Setting(
            "the console's own URL as browsers write it; the provider sends them back to "
            "URL/login/back",
            metavar="URL",
        ),
    ] = ""
    oidc_grants: Annotated[
        tuple[str, ...],
        Setting(
            "what the people of a group may do: ops=audit,operate; the group * is all",
            SettingType(_parse_grants, "GROUP=GRANT,..."),
        ),
    ] = ()
    oidc_groups: Annotated[
        str, Setting("the claim that has the groups of a person", metavar="CLAIM")
    ] = "groups"
    oidc_name: Annotated[str, Setting("the claim that people are called by", metavar="CLAIM")] = (
        "email"
    )

    rulebook: Annotated[
        str,
        Setting(
            "the rulebook's server, to change rules there in each person's name; "
            "without it nothing can be changed",
            metavar="URL",
        ),
    ] = ""
    rulebook_token: Annotated[
        str,
        Setting(
            "the console's own token there, with the grant speak-for: who has logged in at the "
            "provider needs none then; better in the variable than the flag",
            metavar="TOKEN",
            secret=True,
        ),
    ] = ""
    read_only: Annotated[bool, Setting("show the rulebook, and change nothing there")] = False
    glass: Annotated[
        str,
        Setting(
            "where enforcement can be stopped in an emergency: redis://... or file:/glass.json, "
            "as `sluicegate limits glass` takes it",
            metavar="URL",
            secret=True,
        ),
    ] = ""

    def check(self) -> None:
        """Raise for the same service twice, or for too many."""
        super().check()
        if self.oidc_issuer:
            check_provider_url(self.oidc_issuer, "--oidc-issuer")
            check_provider_url(self.oidc_url, "--oidc-url")
            for flag, value in (("client", self.oidc_client), ("grants", self.oidc_grants)):
                if not value:
                    raise BadValue(f"--oidc-{flag}", "", "give it with --oidc-issuer")
            if not (self.access or self.token):
                remedy = "everybody may do everything without it: give --access or --token, too"
                raise BadValue("--oidc-issuer", self.oidc_issuer, remedy)
        if self.rulebook_token and not (self.rulebook and self.oidc_issuer):
            remedy = "it is for --rulebook, and for people who log in at --oidc-issuer; give both"
            raise BadValue("--rulebook-token", "(not shown)", remedy)
        if len(set(self.services)) != len(self.services):
            twice = next(url for url in self.services if self.services.count(url) > 1)
            raise BadValue("--services", twice, "give each service once")
        if not 1 <= len(self.services) <= NODES_MAX:
            raise BadValue("--services", len(self.services), f"give 1 to {NODES_MAX:,}")
