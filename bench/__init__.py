"""Measures the service against its budgets. `python -m bench --help`."""
