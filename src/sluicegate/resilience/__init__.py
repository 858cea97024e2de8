"""The face for services and their callers: the server side and the smart client of the kit.

It composes policies that exist; a new judgement belongs in `policies/`.
"""
