"""Captured traffic: a redacted sample of requests, written to files and read again.

Nothing here knows rules; what is not allowed to be kept never reaches a file.
"""
