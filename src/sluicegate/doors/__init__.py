"""The languages: bytes in, bytes out.

A door translates between a protocol and a decision; it does not decide, and it never imports a
store or an app.
"""
