#!/usr/bin/env python3
"""skipped.py FILE...: names the tests that were skipped, by what `ctest --output-junit FILE` wrote, and says why: the last line of
what each printed."""
import sys
import xml.etree.ElementTree as xml

why = {}
for file in sys.argv[1:]:
    for case in xml.parse(file).iter("testcase"):
        if case.get("status") == "notrun":
            printed = (case.findtext("system-out") or "").split("\n")
            why[case.get("name")] = next((line.strip() for line in reversed(printed) if line.strip()), "it could not be started")
print("Skipped tests:" if why else "No test was skipped.")
for name, reason in why.items():
    print(f"  {name}: {reason.removeprefix('skipped: ')}")
