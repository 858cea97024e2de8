"""The face for functions and web apps: `Limiter`, rate strings, and the rules they follow.

A face composes policies, stores and doors into what a user imports whole. The mathematics is in
`kernels/`, the state is in `stores/`; here is only how they are put together.
"""
