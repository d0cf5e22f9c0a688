"""Spoken dates, times in questions and distances against their right days: python bench/dates.py [--part shown|held] [--out FILE].

The cases are invented and stand in dates.txt with the right days, worked out by hand and not by this program. Rules were changed after
looking at the ``shown`` ones alone; ``held`` ones were first run when that was done. ``first_run`` keeps what was right then.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from dualtrace_local.dates import find_events
from dualtrace_local.dates.windows import beside, distance, windows
from dualtrace_local.stats import wilson

HERE = Path(__file__).parent
RESULT = HERE / "results" / "dates.json"


@dataclass(frozen=True)
class Case:
    """One line of dates.txt."""

    part: str
    kind: str
    on: str
    text: str
    right: str


def cases() -> Iterator[Case]:
    """All cases in the file's order."""
    for line in (HERE / "dates.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Case(*(part.strip() for part in line.split("|")))


def found(case: Case) -> str:
    """What the package makes of a case, written as in the file."""
    day = datetime.fromisoformat(case.on)
    if case.kind == "between":
        return distance(day.date(), date.fromisoformat(case.text))
    if case.kind == "beside":
        told = beside(case.text)
        return f"{told.event} {told.days}" if told else "-"
    if case.kind == "asked":
        ranges = [(str(w.first), str(w.last)) for w in windows(case.text, day)]
    else:
        ranges = [(e.day, e.end or e.day) for e in find_events(case.text, day) if e.day]
    return ", ".join(first if first == last else f"{first}..{last}" for first, last in ranges) or "-"


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--part", choices=("shown", "held"))
    options.add_argument("--out", type=Path, default=RESULT)
    chosen = options.parse_args(arguments)
    parts: dict[str, Any] = {}
    for part in (chosen.part,) if chosen.part else ("shown", "held"):
        mine = [(case, found(case)) for case in cases() if case.part == part]
        wrong = [{"kind": c.kind, "on": c.on, "text": c.text, "right": c.right, "found": f} for c, f in mine if f != c.right]
        share = wilson(len(mine) - len(wrong), len(mine))
        parts[part] = {"hit": len(mine) - len(wrong), "n": len(mine), "wilson_95": [share.low, share.high], "wrong": wrong}
        print(part, f"{parts[part]['hit']} of {len(mine)}", *wrong, sep="\n  ")
    if not chosen.part:
        kept = json.loads(chosen.out.read_text(encoding="utf-8")) if chosen.out.exists() else {}
        first = kept.get("first_run", {name: f"{p['hit']} of {p['n']}" for name, p in parts.items()})
        chosen.out.write_text(json.dumps({"parts": parts, "first_run": first}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
