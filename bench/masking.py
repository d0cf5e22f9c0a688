"""What the masking rules find in chats, and how much of it is no secret: python bench/masking.py DATASET.

Counts over every turn of DATASET (any form that ``dualtrace teach`` reads) are kept in bench/results/masking.json, without any text.
Whether a finding is a secret a person has to say: ``--sample N --show FILE`` writes N findings drawn by seed with the words around them to
FILE, which holds text of chats and belongs outside of the repository, one JSON object a line with an empty ``secret``. Fill in ``yes``
(somebody's, or an invented one in earnest), ``example`` (a placeholder or made-up value in code or text), or ``no`` (a false alarm), and
give the file as ``--marks``. Its marks are added up by rule.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from dualtrace_local.corpus import file_digest, read
from dualtrace_local.masking import found, mask
from dualtrace_local.records import Entry, digest_of
from dualtrace_local.stats import wilson

RESULTS = Path(__file__).parent / "results" / "masking.json"
AROUND = 90
ANSWERS = ("yes", "example", "no")


def findings(dataset: Path, skip: int, limit: int | None, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Each place that a rule takes for a secret, and in ``counts`` what was gone through."""
    for entry in islice(read(dataset), skip, skip + limit if limit else None):
        counts["conversations"] += 1
        for turn in (t for s in entry.sessions for t in s.turns) if isinstance(entry, Entry) else ():
            counts["turns"] += 1
            counts["characters"] += len(turn.text)
            counts["turns that are changed"] += mask(turn.text) != turn.text
            for rule, span in found(turn.text):
                before, after = turn.text[max(0, span.start - AROUND) : span.start], turn.text[span.end : span.end + AROUND]
                words = f"{before}«{turn.text[span.start : span.end]}»{after}"
                yield {"rule": rule, "role": turn.role, "id": digest_of(words, length=16), "words": words, "secret": ""}


def marked(path: Path | None) -> dict[str, Any]:
    """The marks of a file by rule: how many of each answer, and the share of false alarms with its interval."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path else []
    if unknown := {row["secret"] for row in rows} - set(ANSWERS):
        raise SystemExit(f"{path}: {sorted(unknown)} is none of {', '.join(ANSWERS)}; mark every line")
    made: dict[str, Any] = {}
    for rule in ("", *sorted({row["rule"] for row in rows})):
        mine = Counter(row["secret"] for row in rows if rule in ("", row["rule"]))
        share = wilson(mine["no"], mine.total())
        made[rule or "all"] = {**{answer: mine[answer] for answer in ANSWERS}, "false_alarms": [share.value, share.low, share.high]}
    return made if rows else {}


def main() -> None:
    """Count, draw, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--marks", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    started = time.monotonic()
    counts: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    drawn: list[dict[str, Any]] = []
    dice = random.Random(0)  # noqa: S311 - a draw, no secret
    for n, finding in enumerate(findings(args.dataset, args.skip, args.limit, counts)):
        rules[finding["rule"]] += 1
        if n < args.sample:
            drawn.append(finding)
        elif args.sample and (at := dice.randrange(n + 1)) < args.sample:
            drawn[at] = finding
    if args.show:
        args.show.write_text("".join(json.dumps(d, ensure_ascii=False) + "\n" for d in drawn), encoding="utf-8")
    result = {
        "data": {args.dataset.name: file_digest(args.dataset)},
        "skip": args.skip,
        "limit": args.limit,
        "counts": dict(counts),
        "found_by_rule": dict(rules.most_common()),
        "marked": marked(args.marks),
        "seconds": round(time.monotonic() - started, 1),
    }
    text = json.dumps(result, indent=1)
    args.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
