"""Imports: Envoy's access log, CSV and JSON lines, turned into captured traffic, line by line."""
