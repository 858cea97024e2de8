"""Chaos between a client and its server: a faulty proxy, and crowds that know their answers."""
