from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import BadValue
from sluicegate.contracts.observer import Observer
from sluicegate.telemetry.keys import key_hasher
from sluicegate.telemetry.logs import JsonLines, Logs
from tests.telemetry.decisions import NOW, SECOND, STORE_UNAVAILABLE, allowed, refused, tried_out
from tests.telemetry.threads import in_threads

SECRET = b"sixteen bytes or"


class RecordingHandler(logging.Handler):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def sentences(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def recorded() -> RecordingHandler:
    return RecordingHandler()


@pytest.fixture
def logger(recorded: RecordingHandler) -> Iterator[logging.Logger]:
    logger = logging.getLogger("tests.telemetry.logs")
    logger.propagate = False
    logger.addHandler(recorded)
    yield logger
    logger.removeHandler(recorded)


def field(record: logging.LogRecord, name: str) -> object:
    return record.__dict__.get(f"sluicegate.{name}")


def test_a_refusal_is_one_record_with_its_fields(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs: Observer = Logs(logger)
    logs.record_decision(refused(), "user:1", NOW, NOW)
    (record,) = recorded.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == refused().explain()
    assert {
        name: value for name, value in record.__dict__.items() if name.startswith("sluicegate.")
    } == {
        "sluicegate.rule": "login",
        "sluicegate.outcome": "refused",
        "sluicegate.reason": "rate_limited",
        "sluicegate.remaining": 0,
        "sluicegate.retry_after_us": 2_500_000,
        "sluicegate.suppressed": 0,
    }


def test_what_goes_as_usual_is_not_written(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger)
    logs.record_decision(allowed(), "k", NOW, NOW)
    logs.record_decision(allowed(shadow=True), "k", NOW, NOW)
    logs.record_round_trip(3, NOW, NOW + 50, "")
    logs.record_lease("api", "taken", 10)
    logs.flush()
    assert recorded.records == []


def test_degraded_decisions_and_those_of_a_trial_are_written(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger)
    for decision in (
        allowed(degraded=True),
        refused("login", STORE_UNAVAILABLE, degraded=True),
        tried_out(),
    ):
        logs.record_decision(decision, "k", NOW, NOW)
    assert [field(record, "outcome") for record in recorded.records] == [
        "degraded_allowed",
        "degraded_refused",
        "shadow_refused",
    ]
    assert [field(record, "reason") for record in recorded.records] == [
        "",
        "store_unavailable",
        "rate_limited",
    ]


def test_a_flood_writes_a_burst_then_so_many_a_second_and_says_what_it_left_out(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger, lines_per_s=2, burst=3)
    for _ in range(10):
        logs.record_decision(refused(), "k", NOW, NOW)
    assert len(recorded.records) == 3
    logs.record_decision(refused(), "k", NOW, NOW + SECOND // 2 - 1)
    assert len(recorded.records) == 3
    logs.record_decision(refused(), "k", NOW, NOW + SECOND // 2)
    assert len(recorded.records) == 4
    assert field(recorded.records[3], "suppressed") == 8
    assert recorded.sentences[3].endswith("8 more like it were not written.")
    logs.record_decision(refused(), "k", NOW, NOW + SECOND)
    assert field(recorded.records[4], "suppressed") == 0


def test_rules_outcomes_and_reasons_do_not_use_up_each_others_lines(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger, burst=1)
    for _ in range(3):
        for decision in (
            refused("a"),
            refused("b"),
            tried_out("a"),
            refused("a", STORE_UNAVAILABLE),
        ):
            logs.record_decision(decision, "k", NOW, NOW)
    assert len(recorded.records) == 4


def test_rules_beyond_the_bound_share_their_lines_and_keep_their_names(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger, burst=2, rules_max=1)
    for rule in ("a", "b", "c", "d"):
        logs.record_decision(refused(rule), "k", NOW, NOW)
    assert [field(record, "rule") for record in recorded.records] == ["a", "b", "c"]


def test_what_was_left_out_is_told_at_the_end(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger, burst=1)
    for _ in range(5):
        logs.record_decision(refused(), "k", NOW, NOW)
        logs.record_round_trip(1, NOW, NOW, "timeout")
    recorded.records.clear()
    logs.flush()
    assert [
        (field(record, "rule"), field(record, "outcome"), field(record, "suppressed"))
        for record in recorded.records
    ] == [("login", "refused", 4), (None, "store_failed", 4)]
    assert all("4 more like it were not written" in sentence for sentence in recorded.sentences)
    recorded.records.clear()
    logs.flush()
    assert recorded.records == []


@given(
    gaps_us=st.lists(st.integers(0, 3 * SECOND), max_size=80),
    lines_per_s=st.integers(1, 5),
    burst=st.integers(1, 5),
)
def test_within_any_span_no_more_is_written_than_the_burst_and_the_rate(
    gaps_us: list[int], lines_per_s: int, burst: int
) -> None:
    logger, recorded = logging.Logger("flood"), RecordingHandler()
    logger.addHandler(recorded)
    logs = Logs(logger, lines_per_s=lines_per_s, burst=burst)
    written: list[int] = []
    now_us = NOW
    for gap_us in gaps_us:
        now_us += gap_us
        before = len(recorded.records)
        logs.record_decision(refused(), "k", now_us, now_us)
        written += [now_us] * (len(recorded.records) - before)
    for first, began_us in enumerate(written):
        for last in range(first, len(written)):
            span_us = written[last] - began_us
            assert last - first + 1 <= burst + span_us * lines_per_s / SECOND + 1e-9
    logs.flush()
    total = len(written) + sum(int(str(field(record, "suppressed"))) for record in recorded.records)
    assert total == len(gaps_us)


def test_the_stores_failure_and_its_return_are_written(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger)
    logs.record_round_trip(4, NOW, NOW + 10_000, "no answer\nin 10 ms")
    logs.record_round_trip(4, NOW, NOW + 3 * SECOND + 10_000, "")
    logs.record_round_trip(4, NOW, NOW + 4 * SECOND, "")
    assert recorded.sentences == [
        "The store did not answer: no answer\\nin 10 ms",
        "The store answers again, after 3 s.",
    ]
    failed, answered = recorded.records
    assert field(failed, "decisions") == 4
    assert field(failed, "took_us") == 10_000
    assert field(answered, "degraded_us") == 3 * SECOND
    assert [field(record, "outcome") for record in recorded.records] == [
        "store_failed",
        "store_answered",
    ]


def test_a_store_that_comes_and_goes_writes_no_more_than_its_lines(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger, burst=2)
    for _ in range(20):
        logs.record_round_trip(1, NOW, NOW, "timeout")
        logs.record_round_trip(1, NOW, NOW, "")
    assert len(recorded.records) == 4


def test_no_key_is_shown_unless_it_is_asked_for(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    Logs(logger).record_decision(refused(), "ann@example.org", NOW, NOW)
    Logs(logger, show_key="hashed", secret=SECRET).record_decision(
        refused(), "ann@example.org", NOW, NOW
    )
    Logs(logger, show_key="plain").record_decision(refused(), "ann@\nexample.org", NOW, NOW)
    assert [field(record, "key") for record in recorded.records] == [
        None,
        key_hasher(SECRET)("ann@example.org"),
        "ann@\\nexample.org",
    ]
    assert not any("ann" in sentence for sentence in recorded.sentences)


@pytest.mark.parametrize(
    ("show_key", "secret", "field"),
    [
        ("hashed", None, "secret"),
        ("hashed", b"short", "secret"),
        ("plain", SECRET, "secret"),
        ("all", None, "show_key"),
    ],
)
def test_a_way_to_show_keys_that_cannot_be_is_told(
    show_key: str, secret: bytes | None, field: str
) -> None:
    with pytest.raises(BadValue) as refusal:
        Logs(show_key=show_key, secret=secret)
    assert refusal.value.field == field
    assert "sixteen" not in str(refusal.value)


@pytest.mark.parametrize("name", ["lines_per_s", "burst", "rules_max"])
def test_a_bound_below_one_is_told(name: str) -> None:
    with pytest.raises(BadValue, match=name):
        Logs(**{name: 0})  # type: ignore[arg-type]


def test_a_level_that_is_off_costs_no_line(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger, level=logging.INFO, burst=1)
    logger.setLevel(logging.WARNING)
    logs.record_decision(refused(), "k", NOW, NOW)
    logs.record_round_trip(1, NOW, NOW, "timeout")
    assert recorded.records == []
    logger.setLevel(logging.INFO)
    logs.record_decision(refused(), "k", NOW, NOW)
    logs.record_round_trip(1, NOW, NOW, "timeout")
    assert [field(record, "suppressed") for record in recorded.records] == [0, 0]


def test_threads_together_write_no_more_than_one(
    logger: logging.Logger, recorded: RecordingHandler
) -> None:
    logs = Logs(logger, burst=3)

    def work(_: int) -> None:
        for _ in range(300):
            logs.record_decision(refused(), "k", NOW, NOW)

    in_threads(6, work)
    logs.flush()
    assert len(recorded.records) == 4
    assert 3 + sum(int(str(field(record, "suppressed"))) for record in recorded.records) == 1_800


# JSON.


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


@pytest.fixture
def written() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def json_logger(written: io.StringIO) -> logging.Logger:
    logger = logging.Logger("app.limits")
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    return logger


def test_json_lines_hold_the_sentence_and_the_fields(
    json_logger: logging.Logger, written: io.StringIO
) -> None:
    Logs(json_logger, show_key="plain").record_decision(refused('a "b"\n'), "k\r\n\u2028", NOW, NOW)
    (line,) = lines_of(written.getvalue())
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", str(line.pop("time"))
    )
    assert line == {
        "level": "WARNING",
        "logger": "app.limits",
        "message": refused('a "b"\n').explain(),
        "sluicegate.rule": 'a "b"\n',
        "sluicegate.outcome": "refused",
        "sluicegate.reason": "rate_limited",
        "sluicegate.remaining": 0,
        "sluicegate.retry_after_us": 2_500_000,
        "sluicegate.key": "k\\r\\n\\u2028",
        "sluicegate.suppressed": 0,
    }


def test_the_instant_of_a_json_line_is_that_of_its_record() -> None:
    from datetime import datetime

    record = logging.makeLogRecord({"msg": "x", "created": 1_700_000_000.25, "msecs": 250.0})
    (line,) = lines_of(JsonLines().format(record))
    assert datetime.fromisoformat(str(line["time"])).timestamp() == 1_700_000_000.25


def test_json_lines_serve_other_records_too(
    json_logger: logging.Logger, written: io.StringIO
) -> None:
    try:
        int("no number")
    except ValueError:
        json_logger.exception("it %s", "failed", extra={"user": 7, "time": "mine"}, stack_info=True)
    (line,) = lines_of(written.getvalue())
    assert (line["message"], line["user"], line["level"]) == ("it failed", 7, "ERROR")
    assert "no number" in str(line["exception"])
    assert "stack" in line
    # What a line has by itself is not overwritten.
    assert line["time"] != "mine"


def test_a_field_that_is_no_json_is_shown_as_text(
    json_logger: logging.Logger, written: io.StringIO
) -> None:
    circle: list[object] = []
    circle.append(circle)
    for value in (float("nan"), {(1, 2): 3}, circle, object(), "\ud800"):
        json_logger.warning("x", extra={"field": value})
    assert [line["message"] for line in lines_of(written.getvalue())] == ["x"] * 5
