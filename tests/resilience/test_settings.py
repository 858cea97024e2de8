"""Settings come from a table of TOML; what is wrong is named with its path and the remedy."""

from __future__ import annotations

import tomllib

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.settings import Resilience, resilience_settings

WHOLE = """
bypass = ["/up"]
heavy_us = 100_000
jitter = 1

[callers]
shop = "critical"

[queue]
places = 64
form = "facebook"

[heavy_queue]
places = 4

[watermark]
high = 100

[deadline]
default_us = 2_000_000

[concurrency]
initial = 10

[endpoints."/report"]
weight = "heavy"
timeout_us = 2_000_000
"""


def test_a_whole_file_is_read() -> None:
    settings = resilience_settings(tomllib.loads(WHOLE))
    assert settings.bypass == ("/up",)
    assert settings.callers == {"shop": Criticality.CRITICAL}
    assert (settings.queue.places, settings.queue.form) == (64, "facebook")
    assert (settings.heavy_queue.name, settings.heavy_queue.places) == ("heavy_queue", 4)
    assert settings.watermark.high == 100
    assert settings.concurrency is not None
    assert settings.endpoints["/report"].weight == "heavy"


def test_an_empty_file_is_the_defaults() -> None:
    assert resilience_settings({}) == Resilience()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("plces = 1", "resilience.plces"),
        ("heavy_us = 0", "resilience.heavy_us"),
        ("heavy_us = 1.5", "resilience.heavy_us"),
        ("heavy_us = true", "resilience.heavy_us"),
        ("jitter = -1.0", "resilience.jitter"),
        ("retry = 1", "resilience.retry"),
        ('bypass = "/up"', "resilience.bypass"),
        ("queue = 3", "resilience.queue"),
        ("bypass = [5]", "resilience.bypass"),
        ("[queue]\nplaces = 0", "resilience.queue.places"),
        ("[heavy_queue]\nplaces = 0", "resilience.heavy_queue.places"),
        ('[queue]\nplaces = "8"', "resilience.queue.places"),
        ("[watermark]\nlow = 200", "resilience.watermark.low"),
        ('[callers]\nshop = "most"', "resilience.callers.shop"),
        ('[endpoints."/a"]\nweight = "fat"', 'resilience.endpoints."/a".weight'),
        ('[endpoints."/a"]\nspeed = 1', 'resilience.endpoints."/a".speed'),
        ('[endpoints]\n"/a" = "heavy"', 'resilience.endpoints."/a"'),
        ("[queue]\nweights = 3", "resilience.queue.weights"),
        ('[queue.weights]\n"/a" = "much"', "resilience.queue.weights./a"),
        ('[queue.weights]\n"/a" = 0', "resilience.queue.weights./a"),
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
