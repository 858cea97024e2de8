"""SIGHUP takes over the settings that can change while serving, and names the others."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.limiter.app import LimiterApp
from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import STATUS_DEGRADED, STATUS_NORMAL
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import CallContext
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.utilization_gate import Readings, UtilizationGate
from sluicegate.service.live_settings import changes, reread
from sluicegate.service.settings import fields_of, settings_from
from tests.apps.kv.process import KvProcess
from tests.engines.child import until

LATE = Decision(False, 0, 0, 0, DEADLINE, "deadline")
LOG = logging.getLogger("sluicegate.test")


def test_a_reload_takes_what_is_live_and_names_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    before = settings_from(KvSettings, "--quota-ru", "5", "--slots", "7")
    after = settings_from(KvSettings, "--quota-ru", "6", "--slots", "8", "--engine", "memory:")
    assert changes(before, after) == (("quota_ru",), ("engine", "slots"))
    taken = reread(before, lambda: after, LOG)
    assert (taken.quota_ru, taken.slots) == (6, 7)
    assert "needs a restart: engine, slots" in caplog.text


def test_settings_that_cannot_be_used_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> KvSettings:
        raise BadValue("kv.toml: quota_ru", "many", "give a whole number")

    before = KvSettings()
    assert reread(before, fail, LOG) is before
    assert "the settings stay as they are: kv.toml: quota_ru" in caplog.text
    # Nor do those that are wrong together with what stays.
    limits = LimiterSettings()
    assert reread(limits, lambda: LimiterSettings(shed_from=0.99), LOG) is limits


def test_what_has_not_changed_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    before = KvSettings()
    assert reread(before, KvSettings, LOG) is before
    assert not caplog.records


def test_a_limiter_sheds_by_the_ramp_of_the_reload() -> None:
    async def story() -> None:
        app = LimiterApp(LimiterSettings(shed_from=0.7))
        gate = app.gate
        assert isinstance(gate, UtilizationGate)
        gate.observe(Readings(cpu=0.5))
        assert gate.status() == STATUS_NORMAL
        before, app.settings = app.settings, LimiterSettings(shed_from=0.3)
        app.change(before)
        gate.observe(Readings(cpu=0.5))
        assert gate.status() == STATUS_DEGRADED
        await app.end()

    asyncio.run(story())


def test_live_settings_say_so_in_the_help() -> None:
    assert {one.name for one in fields_of(KvSettings) if one.live} == {
        "audit_refusals",
        "cache_bytes",
        "chunk_ru",
        "deadline_ms",
        "grace_s",
        "hot_ttl_ms",
        "leave_s",
        "log",
        "quota_ru",
        "traces_per_s",
        "traces_share",
    }


def test_a_dispatcher_goes_by_each_live_setting_of_the_reload() -> None:
    async def story() -> None:
        app = KvApp(settings_from(KvSettings, "--engine", "memory:"))
        before, app.settings = app.settings, settings_from(
            KvSettings,
            *("--engine", "memory:", "--deadline-ms", "50"),
            *("--hot-ttl-ms", "1000", "--cache-bytes", "8192", "--audit-refusals", "2"),
        )  # fmt: skip
        now_us = app.clock.now_us()
        ring = app.refusals
        for name in ("ann", "bob", "eve"):
            ring.record(Request("key", caller=name, operation="get"), LATE, now_us)
        app.change(before)
        call = CallContext(Identity("ann", ()), arrived_us=now_us)
        request = app.admission.request("get", "t", "key", "", call)
        assert request.remaining_us(now_us) == 50_000
        assert app.hot is not None
        for shield in (app.hot.keys, app.hot.ranges.shield):
            hot = shield.settings
            assert hot.ttl_us == 1_000_000
            assert hot.cache_bytes_max == 4_096
        assert sorted(one.entity for one in ring.find(None)) == ["bob", "eve"]
        await app.engine.close()

    asyncio.run(story())


def test_a_running_dispatcher_gives_more_after_sighup(tmp_path: Path) -> None:
    config = tmp_path / "kv.toml"
    config.write_text("quota_ru = 20\nslots = 9\n")
    with KvProcess(tmp_path, "--engine", "memory:", "--config", str(config)) as kv:

        def quota() -> int:
            kv.ask("/v1/tables/t/rows/1", {"n": 1}, method="PUT")
            decisions = kv.ask("/v1/audit?user=anonymous")[1]["decisions"]
            return int(decisions[0]["quota_mru"]) if decisions else 0

        until(lambda: quota() == 20_000, "a refusal by the first quota")
        config.write_text("quota_ru = 30\nslots = 10\n")
        kv.signal(signal.SIGHUP)
        until(lambda: quota() == 30_000, "a refusal by the second quota")
        log = kv.log.read_text()
        assert "needs a restart: slots" in log
        assert "in force from now on: quota_ru" in log
