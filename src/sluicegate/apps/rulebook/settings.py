"""Settings of a rulebook: each a name in `rulebook.toml`, a flag of `sluicegate rules serve` and a
variable. A path in the file counts from the folder of the rulebook, one that was typed from where
it was typed.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.publishing.settings import REPORT_AGE_US_MAX, ROLLOUT_LOOKS_MIN
from sluicegate.service.common_settings import ADDRESS, ServiceSettings
from sluicegate.service.settings import (
    SHARE,
    Effective,
    Setting,
    SettingType,
    fields_of,
    gather,
    one_of,
    seconds,
    whole,
)

FILE_NAME: Final = "rulebook.toml"
LISTEN_DEFAULT: Final = "127.0.0.1:7075"
PARTS: Final = 10_000
_PATHS: Final = (
    "repository",
    "signing_key",
    "trusted_keys",
    "capture",
    "capture_key",
    "access",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
)
_URLS: Final = ("blobs", "events")
_FILES: Final = "files:"
_TYPED: Final = ("flag", "variable")


def _parse_steps(text: str, where: str) -> tuple[int, ...]:
    """The shares of a canary, one after the other, as parts of 10,000."""
    steps = tuple(round(SHARE(part.strip(), where) * PARTS) for part in text.split(","))
    rising = [*steps] == sorted({*steps})
    if not steps or not rising or not steps[0] or steps[-1] != PARTS:
        raise BadValue(where, text, "give rising shares that end with 100%, as 1%,5%,25%,100%")
    return steps


def _write_steps(steps: tuple[int, ...]) -> str:
    return ",".join(f"{step * 100 / PARTS:g}%" for step in steps)


STEPS: Final = SettingType(_parse_steps, "SHARES", _write_steps)


_AGE_S: Final = seconds(0, 366 * 86_400)


@dataclass(frozen=True, kw_only=True)
class RulebookSettings(ServiceSettings):
    """The rulebook."""

    VARIABLES: ClassVar[str] = "SLUICEGATE_RULES_"

    folder: str  # where it lives; never set by a flag of this name
    repository: Annotated[str, Setting("the git repository, bare or a clone's", metavar="DIR")] = (
        "rules.git"
    )
    branch: Annotated[str, Setting("the branch that people push to", metavar="NAME")] = "main"
    remote: Annotated[
        str,
        Setting(
            "where the branch is kept as well, and pushed to: a URL or a path of git's",
            metavar="URL",
            secret=True,
        ),
    ] = ""
    blobs: Annotated[
        str, Setting("where nodes find the rules: files:DIR, s3://...", metavar="URL")
    ] = "files:blobs"
    events: Annotated[
        str,
        Setting(
            "where changes are announced: files:DIR, kafka://HOST/TOPIC, or nothing for none",
            metavar="URL",
        ),
    ] = "files:events"
    signing_key: Annotated[str, Setting("the private key, PEM, mode 600", metavar="FILE")] = (
        "keys/signing.pem"
    )
    trusted_keys: Annotated[
        tuple[str, ...], Setting("public keys of earlier releases, PEM", metavar="FILE")
    ] = ("keys/signing.pub.pem",)
    capture: Annotated[
        str, Setting("captured traffic that changes are tried on", metavar="DIR")
    ] = "capture"
    capture_key: Annotated[str, Setting("the key of its redaction", metavar="FILE")] = "capture.key"
    critical_refused_max: Annotated[
        float,
        Setting("a change that newly refuses more of the CRITICAL traffic is turned down", SHARE),
    ] = 0.05
    critical_samples_min: Annotated[
        int,
        Setting("with fewer CRITICAL requests a change is not judged", whole(1, 1_000_000_000)),
    ] = 1_000
    own_approval: Annotated[bool, Setting("let people approve what they proposed themselves")] = (
        False
    )
    approvals_min: Annotated[int, Setting("people who must approve", whole(1, 100))] = 1
    rollout_valid_s: Annotated[
        float,
        Setting("a node that hears nothing newer for so long says so; 0: never", _AGE_S),
    ] = 86_400.0
    node_gone_s: Annotated[
        float,
        Setting("a node that was silent for so long is no longer listed; 0: never", _AGE_S),
    ] = 86_400.0
    canary_steps: Annotated[tuple[int, ...], Setting("the shares of a canary", STEPS)] = (
        100,
        500,
        2_500,
        PARTS,
    )
    canary_hold_s: Annotated[
        float, Setting("how long each step is watched at least", seconds(0.1, 86_400))
    ] = 300.0
    canary_samples_min: Annotated[
        int, Setting("CRITICAL decisions that each step must have seen", whole(1, 1_000_000_000))
    ] = 1_000
    semantics: Annotated[
        str,
        Setting(
            "how rules in Envoy's format count; as the nodes have it",
            one_of("sluicegate", "envoy"),
        ),
    ] = "sluicegate"
    merge_domains: Annotated[bool, Setting("let several of Envoy's files be of one domain")] = False
    listen: Annotated[tuple[str, ...], Setting("where `serve` listens", ADDRESS)] = (
        LISTEN_DEFAULT,
    )
    look_s: Annotated[
        float, Setting("between looks for pushes and canaries", seconds(0.05, 3_600))
    ] = 1.0
    message_bytes_max: Annotated[
        int, Setting("bytes of an HTTP body", whole(4_096, 1 << 30, "BYTES"))
    ] = 16 << 20

    def check(self) -> None:
        """Raise for settings that do not go together."""
        super().check()
        if self.tls_client_ca and not (self.access or self.token):
            remedy = "say in the file of --access which certificate may do what"
            raise BadValue("--tls-client-ca", self.tls_client_ca, remedy)
        for name, value, least in (
            ("--rollout-valid-s", self.rollout_valid_s, ROLLOUT_LOOKS_MIN * self.look_s),
            ("--node-gone-s", self.node_gone_s, REPORT_AGE_US_MAX / 1e6),
        ):
            if 0 < value < least:
                raise BadValue(name, f"{value:g}", f"give 0 for never, or {least:g} or more")


def read_settings(
    folder: str,
    arguments: Namespace | None = None,
    environment: Mapping[str, str] | None = None,
) -> Effective[RulebookSettings]:
    """The settings of the rulebook in a folder; flags, if there are any, go before its file."""
    file = os.path.join(folder, FILE_NAME)
    _check_file(folder, file)
    flags = {one.name: getattr(arguments, one.name, None) for one in fields_of(RulebookSettings)}
    found = gather(RulebookSettings, Namespace(config=file, **flags), environment, folder=folder)
    effective = _with_whole_paths(folder, found)
    effective.settings.check()
    return effective


def _check_file(folder: str, file: str) -> None:
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        remedy = f"there is no {FILE_NAME} in it; make one with sluicegate rules init DIR"
        if "://" in folder:
            remedy = "give a folder, or http://..., https://... or unix:PATH of a server"
        raise BadValue("--rulebook", folder, remedy) from None
    except OSError as error:
        cause = error.strerror or str(error)
        raise Unavailable(f"the rulebook in {folder}", f"{FILE_NAME}: {cause}") from None


def _with_whole_paths(
    folder: str, effective: Effective[RulebookSettings]
) -> Effective[RulebookSettings]:
    """Make paths of the file count from its folder, and typed ones from here."""
    settings, texts = effective.settings, dict(effective.texts)
    values: dict[str, Any] = {}
    for name in (*_PATHS, *_URLS):
        join: Callable[[str, str], str] = _join_url if name in _URLS else _join
        value = getattr(settings, name)
        if effective.sources[name].startswith(_TYPED):
            # What is printed may be read from another folder.
            texts[name] = tuple(join(os.getcwd(), text) for text in texts[name])
            value = texts[name] if isinstance(value, tuple) else texts[name][0]
        if isinstance(value, tuple):
            values[name] = tuple(join(folder, path) for path in value)
        else:
            values[name] = join(folder, value)
    return Effective(replace(settings, **values), texts, effective.sources)


def _join(folder: str, path: str) -> str:
    """A path that counts from the folder; an empty one stays empty."""
    return os.path.join(folder, path) if path else path


def _join_url(folder: str, url: str) -> str:
    """Likewise of a URL that names a folder."""
    if not url.startswith(_FILES):
        return url
    return _FILES + _join(folder, url.removeprefix(_FILES))
