"""Reads a JUnit report of pytest; fails when a test was skipped that CI could have run. Last line: the counts."""

import sys
import xml.etree.ElementTree as ElementTree

ALLOWED = "not on this machine:"
# .ci/servers and the extra `test` have put these on the machine, and it reaches the registries: a release that cannot be
# installed is a finding. Containers are another matter.
PRESENT = ("minio", "collector", "seaweedfs", "pip install", "npm install")
CONTAINERS = ("docker", "testcontainers")


def is_allowed(reason: str) -> bool:
    said = reason.lower()
    present = any(word in said for word in PRESENT) and not any(word in said for word in CONTAINERS)
    return reason.startswith(ALLOWED) and not present


def main(report: str) -> int:
    passed = failed = 0
    skipped: list[tuple[str, str]] = []
    for case in ElementTree.parse(report).iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skip is not None and skip.get("type") == "pytest.skip":
            # "Skipped: " stands before the reason where a whole module was skipped.
            reason = skip.get("message", "").removeprefix("Skipped: ").strip()
            skipped.append((f"{case.get('classname')}.{case.get('name')}", reason))
        else:
            passed += 1
    wrong = [(test, reason) for test, reason in skipped if not is_allowed(reason)]
    for test, reason in wrong:
        print(f"skipped though CI can run it: {test}: {reason or 'no reason given'}")
    if passed == 0:
        print("no test passed")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if wrong or failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
