"""``scripts/audit``: what pip-audit says of the locked requirements, and plainly so where it could not find out.

Owns: the verdict.  pip-audit by itself ends well where the database knows no package at all, which is what a mirror
without PyPI's database of vulnerabilities answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from enum import IntEnum
from typing import Any, NamedTuple

COMMAND = ("-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")


class Code(IntEnum):
    """How ``scripts/audit`` ends."""

    NOTHING_KNOWN = 0
    VULNERABLE = 1
    NOT_ASKED = 2


class Verdict(NamedTuple):
    """What is printed, and the exit code."""

    lines: list[str]
    code: Code


def verdict(document: dict[str, Any]) -> Verdict:
    """Of pip-audit's document."""
    packages = document["dependencies"]
    if all("skip_reason" in each for each in packages):
        why = "the database of vulnerabilities knows none of them, as where there is but a mirror of packages"
        return Verdict([f"nothing was audited: of {len(packages)} packages {why}"], Code.NOT_ASKED)
    asked = [each for each in packages if "skip_reason" not in each]
    found = [
        f"{each['name']} {each['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version'}"
        for each in asked
        for flaw in each["vulns"]
    ]
    unknown = sorted(each["name"] for each in packages if "skip_reason" in each)
    lines = [*found, f"{len(asked)} of {len(packages)} packages were asked about"]
    if unknown:
        lines.append(f"not audited, because the database of vulnerabilities does not know them: {', '.join(unknown)}")
    code = Code.VULNERABLE if found else Code.NOT_ASKED if unknown else Code.NOTHING_KNOWN
    return Verdict(lines, code)


def main() -> int:
    files = sys.argv[1:]
    arguments = [each for file in files for each in ("-r", file)]
    done = subprocess.run([sys.executable, *COMMAND, *arguments], capture_output=True, text=True, check=False)
    try:
        lines, code = verdict(json.loads(done.stdout))
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        lines, code = (
            [f"nothing was audited: the database of vulnerabilities is out of reach ({reason})"],
            Code.NOT_ASKED,
        )
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
