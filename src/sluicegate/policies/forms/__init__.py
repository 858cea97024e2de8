"""Forms: overload control as two published systems do it, each whole, in one folder.

A form is selected by its name and shares nothing with the default policies but the contracts and
the kernels. `pool.py` is the pool of slots that both queue in front of.
"""
