"""The zoo: many shapes of service and engine, each played with the product, baselines, an oracle.

A shape is a plain value (`shape.py`); `services.py` and `engines.py` draw them. `play.py` plays a
shape with a candidate, and `bars.py` judges what came of it.
"""
