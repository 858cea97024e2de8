"""YCSB: the mixes A to F of the cloud serving benchmark, on our engines and on a dispatcher.

`records` makes the rows, `keys` chooses among them, `targets` is what is measured.
"""
