"""What-if: recorded traffic under other rules and another capacity, compared side by side.

`sources` reads the traffic, `runs` puts it through rules and policies, `report` has the figures.
"""
