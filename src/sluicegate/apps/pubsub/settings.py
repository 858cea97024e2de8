"""Settings of `sluicegate pubsub`: each a flag, a variable and a name in its settings file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from sluicegate.apps.pubsub.account_limits import RATE_MAX
from sluicegate.apps.pubsub.histories import PARTS_MAX
from sluicegate.apps.pubsub.node_settings import NodeSettings
from sluicegate.apps.pubsub.presence import PresenceBounds
from sluicegate.contracts.errors import BadValue
from sluicegate.service.common_settings import ANY_ORIGIN, LISTEN, ORIGIN, ServiceSettings
from sluicegate.service.settings import Setting, SettingType, seconds, whole
from sluicegate.service.token_settings import SignedTokenSettings

PRESENCE: Final = PresenceBounds()
RATIO_MAX: Final = 1_000
LISTEN_DEFAULT: Final = "127.0.0.1:7090"
_DAY_S: Final = 86_400.0


def _parse_ratio(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= RATIO_MAX:
        raise BadValue(where, text, f"give a number from 0.01 to {RATIO_MAX:,}, as 2.5")
    return value


RATIO: Final = SettingType(_parse_ratio, "N", "{:g}".format)


@dataclass(frozen=True, kw_only=True)
class PubSubSettings(ServiceSettings, NodeSettings, SignedTokenSettings):
    """Channels."""

    VARIABLES: ClassVar[str] = "SLUICEGATE_PUBSUB_"

    listen: Annotated[tuple[str, ...], LISTEN] = (LISTEN_DEFAULT,)
    origins: Annotated[
        tuple[str, ...],
        Setting("origin whose pages may call from a browser, as https://app.example.com", ORIGIN),
    ] = ()
    history: Annotated[
        str, Setting("the folder in which accepted messages are kept", metavar="DIR")
    ] = "sluicegate-pubsub"
    event_log: Annotated[
        str,
        Setting(
            "where messages are kept, as kafka://HOST:PORT/TOPIC; without it, files in --history",
            metavar="URL",
            secret=True,
        ),
    ] = ""
    event_log_parts: Annotated[
        int,
        Setting(
            "partitions of the topic that --event-log names; never changed", whole(1, PARTS_MAX)
        ),
    ] = 16
    history_bytes: Annotated[
        int,
        Setting(
            "bytes of messages that can be read again, of all channels",
            whole(1 << 10, 1 << 36, "BYTES"),
        ),
    ] = 64 << 20
    history_s: Annotated[
        float, Setting("how long a message can be read again", seconds(1, 366 * _DAY_S))
    ] = _DAY_S
    account_rate: Annotated[
        int,
        Setting(
            "messages a second of an account, one for the publisher and one a subscriber; "
            "0 is no limit",
            whole(0, RATE_MAX),
        ),
    ] = 10_000
    account_burst: Annotated[
        int, Setting("of them at once; 0 is those of a second", whole(0, RATE_MAX))
    ] = 0
    account_month: Annotated[
        int,
        Setting(
            "messages a month of an account, nominally: it is warned near them; 0 is no limit",
            whole(0, 1 << 53),
        ),
    ] = 0
    hour_ratio: Annotated[
        int,
        Setting(
            "times its month in proportion that an account may use in an hour; 0 is no limit",
            whole(0, 720),
        ),
    ] = 10
    restrict_ratio: Annotated[
        float,
        Setting("times an hour's or month's messages at which an account is restricted", RATIO),
    ] = 2.5
    account_connections: Annotated[
        int, Setting("connections of an account, at all nodes; 0 is no limit", whole(0, 1 << 40))
    ] = 0
    account_channels: Annotated[
        int,
        Setting(
            "channels with messages of an account, at all nodes; 0 is no limit", whole(0, 1 << 40)
        ),
    ] = 0
    usage_s: Annotated[
        float,
        Setting("between reports of what accounts use up and hold", seconds(0.05, 60)),
    ] = 1.0
    limits: Annotated[
        str,
        Setting(
            "limits of accounts by name: a TOML file; SIGHUP reads it again",
            metavar="FILE",
        ),
    ] = ""
    channel_rate: Annotated[
        int, Setting("messages a second published in a channel; 0 is no limit", whole(0, RATE_MAX))
    ] = 50
    channels_max: Annotated[int, Setting("channels in use at a time", whole(1, 10_000_000))] = (
        100_000
    )
    subscribers_max: Annotated[int, Setting("subscribers at a time", whole(1, 1_000_000))] = 10_000
    subscriptions_max: Annotated[
        int, Setting("subscriptions of a WebSocket connection", whole(1, 1_000_000))
    ] = 100
    presence_channel_max: Annotated[
        int, Setting("members of a channel at a time", whole(1, 1_000_000))
    ] = PRESENCE.presence_channel_max
    presence_member_bytes: Annotated[
        int, Setting("bytes of the data of one member", whole(4, 1 << 20, "BYTES"))
    ] = PRESENCE.presence_member_bytes
    presence_account_bytes: Annotated[
        int,
        Setting("bytes of all members of an account at a node", whole(1 << 12, 1 << 36, "BYTES")),
    ] = PRESENCE.presence_account_bytes
    received_rate: Annotated[
        int,
        Setting("frames a second of a WebSocket connection; more are read later", whole(1, 10**6)),
    ] = 1_000
    received_bytes: Annotated[
        int,
        Setting("bytes a second of one; more are read later", whole(1 << 10, 1 << 30, "BYTES")),
    ] = 1 << 20
    sent_rate: Annotated[
        int,
        Setting(
            "messages a second that one is sent; more come later; 0 is no limit", whole(0, 10**6)
        ),
    ] = 10_000
    sent_bytes: Annotated[
        int,
        Setting("bytes a second that one is sent; 0 is no limit", whole(0, 1 << 30, "BYTES")),
    ] = 16 << 20
    heartbeat_s: Annotated[
        float, Setting("a subscriber that gets no message gets a sign of life", seconds(0.05, 300))
    ] = 15.0
    message_bytes_max: Annotated[
        int, Setting("bytes of a published message", whole(1, 1 << 20, "BYTES"))
    ] = 64 << 10

    def check(self) -> None:
        """Raise for pages or tokens that are let in without access control."""
        super().check()
        if ANY_ORIGIN in self.origins and not (self.access or self.token):
            raise BadValue("--origins", ANY_ORIGIN, "add --access or --token, or name the origins")
        if self.accepts_signed_tokens and not self.access:
            given = self.jwt_keys or self.jwt_secret[0]
            name = "--jwt-keys" if self.jwt_keys else "--jwt-secret"
            raise BadValue(name, given, "add --access: its callers are the accounts")
