"""Settings come from a table of TOML; what is wrong is named with its path and the remedy."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from typing import Any

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.settings import Resilience, resilience_settings

WHOLE = """
slots = 64
bypass = ["/up"]
queue_length = 100
queue_bytes = 1_000_000
hold_streams = true

[callers]
shop = "critical"

[endpoints."/report"]
timeout_s = 2
"""


def test_a_whole_file_is_read() -> None:
    settings = resilience_settings(tomllib.loads(WHOLE))
    assert settings.bypass == ("/up",)
    assert settings.callers == {"shop": Criticality.CRITICAL}
    assert (settings.slots, settings.queue_length, settings.queue_bytes) == (64, 100, 1_000_000)
    assert settings.hold_streams
    assert settings.endpoints["/report"].timeout_s == 2.0


def test_an_empty_file_is_the_defaults() -> None:
    assert resilience_settings({}) == Resilience()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("plces = 1", "resilience.plces"),
        ("slots = -1", "resilience.slots"),
        ("slots = 1.5", "resilience.slots"),
        ("slots = true", "resilience.slots"),
        ("queue_length = 0", "resilience.queue_length"),
        ("queue_bytes = 5", "resilience.queue_bytes"),
        ('form = "facebok"', "resilience.form"),
        ("hold_streams = 1", "resilience.hold_streams"),
        ("retry = 1", "resilience.retry"),
        ('bypass = "/up"', "resilience.bypass"),
        ("bypass = [5]", "resilience.bypass"),
        ('[callers]\nshop = "most"', "resilience.callers.shop"),
        ('[endpoints."/a"]\ntimeout_s = -1.0', 'resilience.endpoints."/a".timeout_s'),
        ('[endpoints."/a"]\ntimeout_s = "2"', 'resilience.endpoints."/a".timeout_s'),
        ('[endpoints."/a"]\nspeed = 1', 'resilience.endpoints."/a".speed'),
        ('[endpoints]\n"/a" = "heavy"', 'resilience.endpoints."/a"'),
        ("[degrade]\nhistory = 3", "resilience.degrade.history"),
        ("[plan]\nlayers = 3", "resilience.plan.layers"),
        ("[faults]\nrules = 5", "faults.rules"),
    ],
)
def test_what_is_wrong_is_named(text: str, field: str) -> None:
    with pytest.raises(BadValue) as caught:
        resilience_settings(tomllib.loads(text))
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ("[queue]\nplaces = 64", "resilience.queue", "give slots"),
        ("[heavy_queue]\nplaces = 4", "resilience.heavy_queue", "delete it"),
        ("heavy_us = 100_000", "resilience.heavy_us", "delete it"),
        ("light_share = 0.5", "resilience.light_share", "delete it"),
        ("[concurrency]\ninitial = 10", "resilience.concurrency", "without slots"),
        ("[deadline]\ndefault_us = 9", "resilience.deadline", "timeout_s"),
        ("[watermark]\nhigh = 100", "resilience.watermark", "delete it"),
        ("[stress]\nwindow_us = 9", "resilience.stress", "delete it"),
        ("[partitions.a]\nshare = 0.5", "resilience.partitions", "callers"),
        ("endpoints_max = 9", "resilience.endpoints_max", "delete it"),
        ("read_ahead_bytes = 9", "resilience.read_ahead_bytes", "delete it"),
        ("jitter = 1.0", "resilience.jitter", "delete it"),
        ('[endpoints."/a"]\ntimeout_us = 9', 'resilience.endpoints."/a".timeout_us', "timeout_s"),
        ('[endpoints."/a"]\nweight = "heavy"', 'resilience.endpoints."/a".weight', "delete it"),
    ],
)
def test_removed_setting_names_what_takes_its_place(text: str, field: str, remedy: str) -> None:
    with pytest.raises(BadValue) as caught:
        resilience_settings(tomllib.loads(text))
    assert caught.value.field == field
    assert remedy in caught.value.remedy


def test_service_has_ten_settings_of_its_protection() -> None:
    others = {"client", "dependencies", "faults", "plan", "objectives", "rulebook"}
    own = {one.name for one in fields(Resilience)} - others
    assert len(own) <= 10, own


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"bypass": "/healthz"}, "resilience.bypass"),
        ({"endpoints": {"/report": 2.0}}, "resilience.endpoints"),
        ({"callers": {"shop": "critical"}}, "resilience.callers.shop"),
        ({"slots": "4"}, "resilience.slots"),
    ],
)
def test_setting_of_wrong_type_in_python_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue, match=f"^{field}"):
        Resilience(**settings)
