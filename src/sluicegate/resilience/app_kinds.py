"""App kinds: one `protect` for ASGI and WSGI applications.

An application whose call is a coroutine function is ASGI, and so is one that takes three arguments
and not two. Any other is WSGI.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.asgi import App
from sluicegate.resilience.server.asgi import ProtectedApp
from sluicegate.resilience.server.asgi import protect as protect_asgi
from sluicegate.resilience.server.protection import Protection, check_app
from sluicegate.resilience.server.wsgi import ProtectedWsgiApp
from sluicegate.resilience.server.wsgi import protect as protect_wsgi
from sluicegate.resilience.settings import Resilience

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


@overload
def protect(
    app: App,
    settings: Resilience | None = None,
    *,
    caller: Callable[[Any], str | None] | None = None,
    endpoint: Callable[[Any], str] | None = None,
    protection: Protection | None = None,
) -> ProtectedApp: ...
@overload
def protect(
    app: WSGIApplication,
    settings: Resilience | None = None,
    *,
    caller: Callable[[Any], str | None] | None = None,
    endpoint: Callable[[Any], str] | None = None,
    protection: Protection | None = None,
) -> ProtectedWsgiApp: ...
def protect(
    app: Any,
    settings: Resilience | None = None,
    *,
    caller: Callable[[Any], str | None] | None = None,
    endpoint: Callable[[Any], str] | None = None,
    protection: Protection | None = None,
) -> ProtectedApp | ProtectedWsgiApp:
    """Return the application behind a protection of these settings, or behind the one given.

    `caller` returns the authenticated caller of a request, `endpoint` its name; each is given the
    ASGI scope or the WSGI environment.
    """
    check_app(app, "ASGI or WSGI")
    if _is_asgi(app):
        return protect_asgi(app, settings, caller=caller, endpoint=endpoint, protection=protection)
    return protect_wsgi(app, settings, caller=caller, endpoint=endpoint, protection=protection)


def _is_asgi(app: Any) -> bool:
    if inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(type(app).__call__):
        return True
    if _takes(app, 2):
        return False
    if _takes(app, 3):
        return True
    remedy = (
        "give an application: ASGI takes (scope, receive, send), WSGI (environ, start_response)"
    )
    raise BadValue("protect.app", app, remedy)


def _takes(app: Any, count: int) -> bool:
    """Whether it can be called with this number of arguments."""
    try:
        inspect.signature(app).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # of C, and without a signature
        return count == 2
    return True
