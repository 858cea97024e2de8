"""The Django project of these tests. A process has one, and a guide may have been it before."""

from __future__ import annotations

import django
from django.apps import apps
from django.conf import settings

SETTINGS = {
    "ALLOWED_HOSTS": ["*"],
    "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    "INSTALLED_APPS": [
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
    ],
    "SECRET_KEY": "not a secret",
    "SESSION_ENGINE": "django.contrib.sessions.backends.signed_cookies",
}


def set_up(urls: str) -> None:
    """Be a project whose URLs are in the module `urls`."""
    if not settings.configured:
        settings.configure()
    for name, value in {**SETTINGS, "ROOT_URLCONF": urls}.items():
        setattr(settings, name, value)
    if not apps.ready:
        django.setup()
