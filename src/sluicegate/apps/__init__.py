"""The wiring: settings, start, stop, one app a folder.

An app composes everything below it into a process. Apps never import each other.
"""
