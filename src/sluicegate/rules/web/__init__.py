"""Rules of a web application: its rules file, parsed, compiled, and judged by a guard."""
