"""Settings of a rulebook: the checked values of `fields.py`, with paths made whole."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluicegate.apps.rulebook.fields import FIELDS
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.service.common_settings import check_certificates
from sluicegate.service.settings import Effective, gather

FILE_NAME: Final = "rulebook.toml"
VARIABLES_PREFIX: Final = "SLUICEGATE_RULES_"
_PATHS: Final = (
    "repository",
    "signing_key",
    "capture",
    "capture_key",
    "access",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
)
_URLS: Final = ("blobs", "events")
_FILES: Final = "files:"
_FROM_HERE: Final = ("flag", "variable")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a rulebook is told, as `FIELDS` has it; `folder` is where it lives."""

    folder: str
    repository: str
    branch: str
    remote: str
    remote_every_s: float
    blobs: str
    events: str
    signing_key: str
    trusted_keys: tuple[str, ...]
    capture: str
    capture_key: str
    critical_refused_max: float
    critical_samples_min: int
    own_approval: bool
    approvals_min: int
    canary_steps: tuple[int, ...]
    canary_hold_s: float
    canary_samples_min: int
    semantics: str
    merge_domains: bool
    deltas: int
    listen: tuple[str, ...]
    tls_cert: str
    tls_key: str
    tls_client_ca: str
    tls_client_optional: bool
    access: str
    token: str
    insecure: bool
    metrics_open: bool
    hosts: tuple[str, ...]
    look_s: float
    grace_s: float
    log: str


def read_settings(
    folder: str,
    arguments: Namespace | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Settings, Effective]:
    """The settings of the rulebook in a folder; flags, if there are any, go before its file.

    A path in the file counts from the folder, one that was typed from where it was typed.
    """
    file = os.path.join(folder, FILE_NAME)
    _must_be_there(folder, file)
    said = {field.name: getattr(arguments, field.name, None) for field in FIELDS}
    gathered = gather(FIELDS, Namespace(config=file, **said), VARIABLES_PREFIX, environment)
    effective = _made_whole(gathered)
    values: dict[str, Any] = dict(effective.values)
    for name in _PATHS:
        values[name] = _whole(folder, values[name])
    values["trusted_keys"] = tuple(_whole(folder, one) for one in values["trusted_keys"])
    for name in _URLS:
        values[name] = _whole_url(folder, values[name])
    settings = Settings(folder=folder, **values)
    _check(settings)
    return settings, effective


def _must_be_there(folder: str, file: str) -> None:
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        remedy = f"there is no {FILE_NAME} in it; make one with sluicegate rules init DIR"
        if "://" in folder:
            remedy = "give a folder, or http://..., https://... or unix:PATH of a server"
        raise BadValue("--rulebook", folder, remedy) from None
    except OSError as error:
        seen = error.strerror or str(error)
        raise Unavailable(f"the rulebook in {folder}", f"{FILE_NAME}: {seen}") from None


def _made_whole(effective: Effective) -> Effective:
    """The same, where what was typed or stands in a variable no longer counts from anywhere."""
    values, texts = dict(effective.values), dict(effective.texts)
    for name in (*_PATHS, *_URLS, "trusted_keys"):
        if effective.sources[name].startswith(_FROM_HERE):
            here = os.getcwd()
            whole = _whole_url if name in _URLS else _whole
            texts[name] = tuple(whole(here, text) for text in texts[name])
            values[name] = texts[name] if name == "trusted_keys" else texts[name][0]
    return Effective(effective.fields, values, texts, effective.sources)


def _check(settings: Settings) -> None:
    check_certificates(settings)
    if settings.tls_client_ca and not (settings.access or settings.token):
        remedy = "say in the file of --access which certificate may do what"
        raise BadValue("--tls-client-ca", settings.tls_client_ca, remedy)


def _whole(folder: str, path: str) -> str:
    """A path that counts from the folder; an empty one stays empty."""
    return os.path.join(folder, path) if path else path


def _whole_url(folder: str, url: str) -> str:
    """Likewise of a URL that names a folder."""
    if not url.startswith(_FILES):
        return url
    return _FILES + _whole(folder, url.removeprefix(_FILES))
