"""Headgate stands where work enters a service and decides, for every unit, whether it may enter."""
