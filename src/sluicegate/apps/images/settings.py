"""Settings of `sluicegate images`: each a flag, a variable and a name in its settings file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.image_spec import PLACEHOLDER, check_presets
from sluicegate.service.common_settings import ADDRESS, NETWORK, PORT_MAX, ServiceSettings
from sluicegate.service.settings import (
    Setting,
    SettingsBase,
    SettingType,
    one_of,
    seconds,
    whole,
)

SERVICE: Final = "http://127.0.0.1:7060"
LISTEN_DEFAULT: Final = "127.0.0.1:7060"
KEY_CHARS_MIN: Final = 16
CLOSED: Final = (
    "--sign-key protects images only; add --access FILE or --token TOKEN for everything else, "
    "or --insecure to leave it open"
)
RU_MAX: Final = 1 << 30
PROCESSES_MAX: Final = 256
QUEUE_MAX: Final = 1_000  # images that wait for a worker; beyond, the least critical are rejected
QUOTA_BURST_S: Final = 10  # seconds of a quota that may be spent at once
FRAMES_MAX: Final = 1_000  # of an original
WAITERS_MAX: Final = 20_000  # requests that wait for an answer at a time
PREFETCH_MAX: Final = 1_000  # images of one prefetch
PREFETCH_AT_ONCE: Final = 8
HELD_BYTES_MAX: Final = 256 << 20  # of all running downloads; one original has room in any case
MARKS_BYTES_MAX: Final = 32 << 20  # memory of a collection
GALLERY_EVERY_US: Final = 60_000_000
_DAY_S: Final = 86_400.0
_YEARS_S: Final = 10 * 366 * _DAY_S


def _parse_port(text: str, where: str) -> str:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= PORT_MAX):
        raise BadValue(where, text, f"give a port from 1 to {PORT_MAX}")
    return text


def _parse_key(text: str, where: str) -> str:
    if len(text) < KEY_CHARS_MIN:
        raise BadValue(where, "(not shown)", f"give at least {KEY_CHARS_MIN} characters")
    return text


def _parse_preset(text: str, where: str) -> str:
    name, colon, spec = text.partition(":")
    if not colon:
        raise BadValue(where, text, "write NAME:SPEC, as card:w=400,h=300,fit=cover")
    check_presets({name: spec})
    return text


def _parse_hex(text: str, where: str) -> str:
    try:
        bytes.fromhex(text)
    except ValueError:
        raise BadValue(where, "(not shown)", "give bytes in hex, as 0a1b") from None
    return text


def _parse_quota(text: str, where: str) -> str:
    name, _, units = text.rpartition(":")
    if not name or not (units.isascii() and units.isdigit() and 0 < int(units) <= RU_MAX):
        raise BadValue(where, text, "write CALLER:RU, request units a second, as shop:50")
    return text


FOREIGN: Final = one_of("imgproxy", "thumbor")
HEX: Final = SettingType(_parse_hex, "HEX")
PRESET: Final = SettingType(_parse_preset, "NAME:SPEC")
QUOTA: Final = SettingType(_parse_quota, "CALLER:RU")
PORT: Final = SettingType(_parse_port, "PORT")
KEY: Final = SettingType(_parse_key, "KEY")


@dataclass(frozen=True, kw_only=True)
class OriginFlags(SettingsBase):
    """Downloads from origins."""

    origin_networks: Annotated[
        tuple[str, ...],
        Setting("networks that may be asked although they are not of the internet", NETWORK),
    ] = ()
    origin_hosts: Annotated[
        tuple[str, ...],
        Setting("the only hosts that may be asked; .example.com is all below it", metavar="HOST"),
    ] = ()
    origin_ports: Annotated[tuple[str, ...], Setting("ports that may be asked", PORT)] = (
        "80",
        "443",
    )
    origin_bytes_max: Annotated[
        int, Setting("bytes of an original", whole(1, 1 << 30, "BYTES"))
    ] = 32 << 20
    origin_timeout_s: Annotated[
        float, Setting("time for a whole download, redirects included", seconds(0.01, 3_600))
    ] = 20.0
    origin_idle_s: Annotated[
        float, Setting("give up an origin that is silent for so long", seconds(0.01, 600))
    ] = 5.0
    origin_per_host: Annotated[
        int, Setting("downloads at a time from one host; others queue", whole(1, 100_000))
    ] = 16


@dataclass(frozen=True, kw_only=True)
class MemoryFlags(SettingsBase):
    """What is remembered, and for how long."""

    fresh_s: Annotated[
        float, Setting("ask an origin after so long whether an image changed", seconds(0, _YEARS_S))
    ] = 3_600.0
    fresh_max_s: Annotated[
        float,
        Setting("longest time for which an origin's max-age is honored", seconds(0, _YEARS_S)),
    ] = _DAY_S
    stale_s: Annotated[
        float,
        Setting("serve an image this long after it is due, and check behind", seconds(0, _YEARS_S)),
    ] = _DAY_S
    recheck_s: Annotated[
        float,
        Setting("ask it at most so often for callers who know of a newer version", seconds(0, 600)),
    ] = 1.0
    keep_s: Annotated[
        float,
        Setting("forget a URL not asked for so long; 0 is never", seconds(0, _YEARS_S)),
    ] = 90 * _DAY_S
    collect_every_s: Annotated[
        float, Setting("collect what nothing refers to so often; 0 is never", seconds(0, _YEARS_S))
    ] = 3_600.0
    collect_grace_s: Annotated[
        float,
        Setting("remove it so long after that; longer than any write", seconds(1, _YEARS_S)),
    ] = 3_600.0
    cache_bytes: Annotated[
        int, Setting("bytes of variants served from memory", whole(1 << 16, 1 << 40, "BYTES"))
    ] = 64 << 20
    recent_bytes: Annotated[
        int,
        Setting(
            "bytes of originals kept in memory for their next variants; 0 is none",
            whole(0, 1 << 40, "BYTES"),
        ),
    ] = 32 << 20


@dataclass(frozen=True, kw_only=True)
class ProcessFlags(SettingsBase):
    """Processing."""

    processes: Annotated[int, Setting("worker processes", whole(1, PROCESSES_MAX))] = min(
        os.cpu_count() or 1, PROCESSES_MAX
    )
    near: Annotated[
        str,
        Setting(
            "originals that look alike: report them, or share the variants of the first",
            one_of("off", "report", "share"),
        ),
    ] = "report"
    process_s: Annotated[
        float, Setting("end a worker that takes longer for one image", seconds(0.01, 600))
    ] = 15.0
    process_bytes_max: Annotated[
        int, Setting("address space of a worker", whole(256 << 20, 1 << 40, "BYTES"))
    ] = 1 << 30
    pixels_max: Annotated[
        int, Setting("pixels of an original, of all frames", whole(1, 1 << 40))
    ] = 100_000_000
    result_side_max: Annotated[int, Setting("longest side of a result", whole(1, 16_383))] = 8_192
    quota_ru: Annotated[
        int,
        Setting(
            "request units (pixels made) a second for each caller; 0 is no quota",
            whole(0, RU_MAX, "RU"),
        ),
    ] = 0
    caller_quota: Annotated[
        tuple[str, ...], Setting("another quota for one caller, as shop:50", QUOTA)
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ImagesSettings(OriginFlags, MemoryFlags, ProcessFlags, ServiceSettings):
    """Images."""

    VARIABLES: ClassVar[str] = "SLUICEGATE_IMAGES_"

    listen: Annotated[tuple[str, ...], Setting("where to listen for HTTP", ADDRESS)] = (
        LISTEN_DEFAULT,
    )
    kv: Annotated[
        str,
        Setting("where the maps are kept: lmdb:DIR, or another engine by its URL", metavar="URL"),
    ] = "lmdb:sluicegate-images/kv"
    blobs: Annotated[
        str, Setting("where images are kept: files:DIR or s3://bucket/prefix", metavar="URL")
    ] = "files:sluicegate-images/blobs"
    preset: Annotated[
        tuple[str, ...],
        Setting("a specification by name, as card:w=400,h=300,fit=cover", PRESET),
    ] = ()
    avif: Annotated[bool, Setting("choose AVIF for clients that accept it; slow to make")] = False
    foreign_urls: Annotated[
        tuple[str, ...],
        Setting("serve URLs of others too, below /imgproxy and /thumbor", FOREIGN),
    ] = ()
    imgproxy_key: Annotated[str, Setting("its key, in hex", HEX, secret=True)] = ""
    imgproxy_salt: Annotated[str, Setting("its salt, in hex", HEX, secret=True)] = ""
    thumbor_key: Annotated[str, Setting("its key", metavar="KEY", secret=True)] = ""
    sign_key: Annotated[
        tuple[str, ...],
        Setting(
            "serve only URLs that are signed with it; several while one replaces another",
            KEY,
            secret=True,
        ),
    ] = ()
    max_age_s: Annotated[
        float, Setting("for how long others may keep an answer", seconds(0, _YEARS_S))
    ] = 3_600.0
    timeout_s: Annotated[float, Setting("longest time for an answer", seconds(0.1, 3_500))] = 25.0
    fallback_s: Annotated[
        float,
        Setting("show a page another image if one is not ready after this", seconds(0, 600)),
    ] = 4.0
    message_bytes_max: Annotated[int, Setting("bytes of an upload", whole(1, 1 << 30, "BYTES"))] = (
        32 << 20
    )

    uploads_bytes_max: Annotated[
        int,
        Setting(
            "bytes of all uploads under way together; beyond, they are refused",
            whole(1 << 20, 1 << 40, "BYTES"),
        ),
    ] = 256 << 20

    def check(self) -> None:
        """Raise for a way around the signatures."""
        super().check()
        if self.uploads_bytes_max < self.message_bytes_max:
            remedy = f"give at least {self.message_bytes_max:,}: one upload (--message-bytes-max)"
            raise BadValue("--uploads-bytes-max", self.uploads_bytes_max, remedy)
        keys = {"imgproxy": self.imgproxy_key, "thumbor": self.thumbor_key}
        for name in self.foreign_urls:
            if self.sign_key and not keys[name]:
                remedy = f"give --{name}-key too, or its URLs need no signature"
                raise BadValue("--foreign-urls", name, remedy)

    @property
    def closed_to_anonymous(self) -> bool:
        """Whether all but signed images is denied: there are signatures, and no callers."""
        return bool(self.sign_key) and not (self.access or self.token or self.insecure)

    def quotas(self) -> dict[str, int]:
        """Request units a second by caller, for those that are named."""
        pairs = (one.rpartition(":") for one in self.caller_quota)
        return {name: int(units) for name, _, units in pairs}

    def presets(self) -> dict[str, str]:
        """Specifications by their names; `placeholder` is there unless it is given."""
        given = {name: spec for name, _, spec in (one.partition(":") for one in self.preset)}
        return {"placeholder": PLACEHOLDER} | given
