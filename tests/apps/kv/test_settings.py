"""How many settings an operator of the dispatcher meets, and the default quota."""

from __future__ import annotations

import inspect

import pytest

from sluicegate.apps.kv.settings import NO_QUOTA_RU, QUOTA_RU, KvSettings
from sluicegate.service.settings import fields_of

OWN_MAX = 25
# Those that every service has, and every service that is configured by rules.
COMMON = {
    "tls_cert", "tls_key", "tls_client_ca", "tls_client_optional", "access", "token", "insecure",
    "connections_max", "connections_per_address_max", "proxy_protocol", "trusted_proxies",
    "traces", "traces_share", "leave_s", "grace_s", "metrics_open", "hosts", "log",
    "workers", "rules", "glass", "rulebook", "rulebook_keys", "rulebook_events",
    "rulebook_folder", "node",
}  # fmt: skip


def test_operator_meets_at_most_25_own_settings() -> None:
    everyday = {one.name for one in fields_of(KvSettings) if not one.expert}
    own = everyday - COMMON
    assert len(own) <= OWN_MAX, sorted(own)
    assert own <= set(inspect.get_annotations(KvSettings)), "name common settings in COMMON"
    assert everyday >= COMMON


@pytest.mark.parametrize(
    ("settings", "quota_ru"),
    [
        (KvSettings(), NO_QUOTA_RU),
        (KvSettings(access="callers.toml"), QUOTA_RU),
        (KvSettings(rules=("rules.yaml",)), QUOTA_RU),
        (KvSettings(rulebook="files:book"), QUOTA_RU),
        (KvSettings(quota_ru=500), 500),
        (KvSettings(quota_ru=500, access="callers.toml"), 500),
    ],
)
def test_default_quota_needs_callers_with_names(settings: KvSettings, quota_ru: int) -> None:
    assert settings.others_ru == quota_ru
