"""The durability: the same operations wherever the state lives.

A store knows the contracts, the kernels and one driver. It is handed operations as values, never
closures, and its tests hold every answer against the kernel's.
"""
