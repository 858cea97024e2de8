"""Captured traffic: a redacted sample of what was asked, kept in files, and read again.

Nothing here knows rules; what is not allowed to be kept never reaches a file.
"""
