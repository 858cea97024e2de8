"""Traces: recorded requests, read from files of four formats as a stream, or generated in typical
shapes. `formats` opens files, `shapes` generates.
"""
