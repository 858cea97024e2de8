"""The rulebook over HTTP: proposals, approvals, releases and rollouts.

Forms read what comes, routes say which path leads where; each call runs on a thread of its own.
"""
