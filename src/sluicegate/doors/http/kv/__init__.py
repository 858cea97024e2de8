"""The key-value store over HTTP: rows, ranges, uploads, and what there is to see of it.

Forms read what comes, replies write what goes, routes say which path leads where.
"""
