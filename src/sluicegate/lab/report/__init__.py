"""The report of the lab: scenarios run, and one page with plots of them and the margin to every
goal.
"""
