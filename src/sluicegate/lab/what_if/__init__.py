"""What-if: recorded traffic played against other rules and another capacity, and compared.

`sources` reads the traffic, `play` puts it through the production policies, `report` counts.
"""
