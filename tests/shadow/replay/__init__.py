"""Replay, analysis, gate and report of captured traffic."""
