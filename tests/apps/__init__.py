"""Tests of the apps: whole processes over real sockets where it can be so, pure parts beside."""
