"""Event logs: which log a URL means. A driver is imported only when its log is asked for."""

from __future__ import annotations

import os

from sluicegate.contracts.errors import BadValue, HasWriter
from sluicegate.contracts.event_log import EventLog, SharedLog
from sluicegate.stores.files import settings as files

KAFKA_SCHEMES = ("kafka://", "kafka+ssl://")


def check_log(url: str) -> None:
    """Raise `BadValue` for files that nobody here can ever write; a broker may come back."""
    if not url.startswith(files.SCHEME):
        return
    from sluicegate.stores.files.segments import take_lock  # noqa: PLC0415 - only if it is asked for

    settings = files.parse_url(url)
    try:
        os.close(take_lock(settings))
    except HasWriter:
        pass  # it may be about to end
    except OSError as error:
        remedy = f"give a folder that we may write to ({error.strerror or error})"
        raise BadValue("files.folder", settings.folder, remedy) from None


def open_log(url: str) -> EventLog:
    """Return the log of `files:DIR` or `kafka://host:port/topic`.

    Nothing is written or connected to before it is needed; `MissingPackage` says what is missing.
    """
    if url.startswith(files.SCHEME):
        from sluicegate.stores.files.log import FileLog  # noqa: PLC0415 - only if it is asked for

        return FileLog(files.parse_url(url))
    return open_shared_log(url, "files:DIR or kafka://host:port/topic")


def open_shared_log(url: str, others: str = "kafka://host:port/topic") -> SharedLog:
    """Return the log of `kafka://host:port/topic`."""
    if url.startswith(KAFKA_SCHEMES):
        from sluicegate.stores.kafka.url import parse_url  # noqa: PLC0415 - likewise

        kafka = parse_url(url)  # a wrong URL is told before a missing package
        from sluicegate.stores.kafka.log import KafkaLog  # noqa: PLC0415 - likewise

        return KafkaLog(kafka)
    shown = url.partition(":")[0] + ":..."
    raise BadValue("event_log.url", shown, f"give {others}")
