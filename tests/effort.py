"""How hard the suites of random crashes and random input try: a little in every run, much in `make nightly`."""

import os

NIGHTLY = os.environ.get("BLACKBOARD_NIGHTLY") == "1"

CRASHES = 200 if NIGHTLY else 20
"""Times that a loaded service is killed."""

FUZZ_SECONDS = 600 if NIGHTLY else 0
"""Seconds that the fuzzers go on; 0 = a fixed small number of examples."""
