"""Verdicts on brokers, mail, directories, DNS and SSH."""

from __future__ import annotations

from typing import Any, Final

from sluicegate.policies.client.call_result import CallResult
from sluicegate.resilience.errors.verdicts import (
    FAILED,
    REJECTED,
    TIMED_OUT,
    UNREACHED,
    Found,
    Verdict,
    named,
    overloaded,
)

# librdkafka's own numbers.
_KAFKA_UNREACHED: Final = (-193, -187, -195)  # no name, no broker, transport
_KAFKA_TIMED_OUT: Final = (-185, -192)


def _kafka(error: Any) -> Found:
    return CallResult(FAILED if error.retriable else REJECTED, error=error)


def _librdkafka(error: Any) -> Found:
    inner: Any = error.args[0] if error.args else None
    code = inner.code() if hasattr(inner, "code") else 0
    if code in _KAFKA_UNREACHED:
        return CallResult(UNREACHED, error=error, unproven=True)
    if code in _KAFKA_TIMED_OUT:
        return CallResult(TIMED_OUT, error=error)
    passing = hasattr(inner, "retriable") and inner.retriable()
    return CallResult(FAILED if passing else REJECTED, error=error)


def _pika(error: Any) -> Found:
    """The class itself is raised where no connection could be opened, its heirs where one broke."""
    opened = type(error).__name__ != "AMQPConnectionError"
    return CallResult(FAILED if opened else UNREACHED, error=error)


def _smtp(error: Any) -> Found:
    """421: the server closes; another 4xx: it may take the mail later, and has not taken it."""
    code = getattr(error, "smtp_code", None)
    if code is None:
        code = getattr(error, "code", 0)
    if code == 421:
        return overloaded(error)
    passing = isinstance(code, int) and (400 <= code < 500 or code <= 0)
    return CallResult(FAILED if passing else REJECTED, error=error)


_SMTP: Final[dict[str, Verdict]] = {
    "SMTPServerDisconnected": FAILED,
    "SMTPTimeoutError": TIMED_OUT,
    "SMTPConnectError": UNREACHED,
    "SMTPResponseException": _smtp,
    "SMTPRecipientsRefused": REJECTED,
    "SMTPException": None,
}

BROKERS: Final[dict[str, Verdict]] = {
    **named(
        "kafka.errors", NoBrokersAvailable=UNREACHED, KafkaTimeoutError=TIMED_OUT, KafkaError=_kafka
    ),
    **named("aiokafka.errors", KafkaTimeoutError=TIMED_OUT, KafkaError=_kafka),
    **named("cimpl", KafkaException=_librdkafka),
    **named(
        "pika.exceptions",
        ProbableAuthenticationError=REJECTED,
        ProbableAccessDeniedError=REJECTED,
        IncompatibleProtocolError=FAILED,  # pika's word for a connection that ends early
        ConnectionBlockedTimeout=overloaded,
        AMQPConnectionError=_pika,
        NackError=FAILED,
        ChannelClosed=REJECTED,
        ChannelWrongStateError=FAILED,
        UnroutableError=REJECTED,
    ),
    **named(
        "aiormq.exceptions",
        ConnectionClosed=FAILED,
        IncompatibleProtocolError=FAILED,  # pika's word for a connection that ends early
        ProbableAuthenticationError=REJECTED,
        AMQPConnectionError=_pika,
        ChannelInvalidStateError=FAILED,
        DeliveryError=FAILED,
        AMQPChannelError=REJECTED,
    ),
    **named("kombu.exceptions", OperationalError=UNREACHED),
    **named(
        "amqp.exceptions",
        RecoverableConnectionError=FAILED,
        RecoverableChannelError=FAILED,
        AMQPError=REJECTED,
    ),
    **named(
        "nats.errors",
        NoServersError=UNREACHED,
        NoRespondersError=UNREACHED,
        ConnectionClosedError=FAILED,
        StaleConnectionError=FAILED,
        UnexpectedEOF=FAILED,
    ),
    **named("smtplib", **_SMTP),
    **named("aiosmtplib.errors", **_SMTP),
    **named("imaplib", **{"IMAP4.abort": FAILED}),
    **named("ftplib", error_temp=FAILED, error_perm=REJECTED),
    **named(
        "ldap3.core.exceptions",
        LDAPSocketOpenError=UNREACHED,
        LDAPServerPoolExhaustedError=UNREACHED,
        LDAPResponseTimeoutError=TIMED_OUT,
        LDAPMaximumRetriesError=FAILED,
        LDAPCommunicationError=FAILED,
        LDAPBusyResult=overloaded,
        LDAPUnavailableResult=FAILED,
        LDAPTimeLimitExceededResult=TIMED_OUT,
        LDAPOperationResult=REJECTED,
        LDAPBindError=REJECTED,
    ),
    **named(
        "ldap",
        SERVER_DOWN=UNREACHED,
        CONNECT_ERROR=UNREACHED,
        TIMEOUT=TIMED_OUT,
        TIMELIMIT_EXCEEDED=TIMED_OUT,
        BUSY=overloaded,
        UNAVAILABLE=FAILED,
        LDAPError=REJECTED,
    ),
    **named("dns.exception", Timeout=TIMED_OUT),
    **named("dns.resolver", NoNameservers=FAILED, NXDOMAIN=REJECTED, NoAnswer=REJECTED),
    **named(
        "paramiko.ssh_exception",
        NoValidConnectionsError=UNREACHED,
        AuthenticationException=REJECTED,
        BadHostKeyException=REJECTED,
        SSHException=FAILED,
    ),
    **named(
        "asyncssh.misc",
        PermissionDenied=REJECTED,
        HostKeyNotVerifiable=REJECTED,
        DisconnectError=FAILED,
        ChannelOpenError=FAILED,
    ),
}
