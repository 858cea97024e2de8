"""The report of the lab: scenarios played, and one page with pictures and margins of them all."""
