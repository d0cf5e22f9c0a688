"""What is answered right, and where it fails: python bench/answers.py DATASET... [--conditions c6,c8,history] [--model NAME] [--runs DIR].

Each DATASET is taught once and asked under each condition, as by `dualtrace run`; its run folder is kept under ``--runs`` and resumed, else
thrown away. Numbers on rows that prompts or thresholds were chosen on are `development`: say so with ``--development``.

Every wrong answer to a question that names its evidence is one of:

* ``not kept``: the gate dropped an evidence session, and the condition reads nothing of dropped ones;
* ``not found``: of an evidence session nothing was delivered;
* ``misread``: something of every evidence session was delivered (which may still lack the detail), and the answer is wrong;

and for questions without an answer ``made up``: the answer should have been that nothing is stored.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dualtrace_local.config import Condition, Role, read_conditions, read_models
from dualtrace_local.corpus import file_digest
from dualtrace_local.pipeline.experiment import Plan, run
from dualtrace_local.pipeline.folder import KeyedGold, RunFolder
from dualtrace_local.pipeline.parts import Parts, versions
from dualtrace_local.records import Answer, Verdict
from dualtrace_local.stats import wilson

RESULT = Path(__file__).parent / "results" / "answers.json"
WRONG = ("not kept", "not found", "misread", "made up")


def why_wrong(answer: Answer, gold: KeyedGold, condition: Condition, status: Mapping[str, str]) -> str:
    """Which step lost the answer; ``status`` is the ledger's, by session key."""
    if gold.gold.abstention or not gold.evidence:
        return "made up" if gold.gold.abstention else "misread"
    delivered = set(answer.delivered_sessions)
    lost = [key for key in gold.evidence if key not in delivered]
    if not lost:
        return "misread"
    reads_all = "rounds" in condition.stored
    return "not found" if reads_all or all(status.get(key) == "taught" for key in lost) else "not kept"


def rows(folder: RunFolder, conditions: Mapping[str, Condition]) -> Iterable[dict[str, Any]]:
    """One row for each condition and kind of question, and one for all kinds."""
    golds = {g.gold.question_id: g for g in folder.golds()}
    status = {row["key"]: row["status"] for row in folder.lines("sessions.jsonl").read()}
    for name, condition in conditions.items():
        verdicts: dict[str, Verdict] = {v.question_id: v for v in folder.verdicts(name, folder.manifest["judge"])}
        answers = {a.question_id: a for a in folder.answers(name)}
        kinds: dict[str, list[str]] = {"overall": list(golds)}
        for question_id, gold in golds.items():
            kinds.setdefault("abstention" if gold.gold.abstention else gold.gold.kind, []).append(question_id)
        for kind, asked in kinds.items():
            scored = [i for i in asked if i in verdicts and verdicts[i].correct is not None]
            wrong = [i for i in scored if not verdicts[i].correct]
            reasons = Counter(why_wrong(answers[i], golds[i], condition, status) for i in wrong)
            share = wilson(len(scored) - len(wrong), len(scored))
            tokens = [answers[i].context_tokens for i in asked if i in answers]
            yield {
                "condition": name,
                "kind": kind,
                "n": len(asked),
                "scored": len(scored),
                "right": len(scored) - len(wrong),
                "wilson_95": [share.low, share.high],
                "context_tokens": round(sum(tokens) / len(tokens)) if tokens else 0,
                **{reason: reasons[reason] for reason in WRONG},
            }


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("datasets", nargs="+", type=Path)
    options.add_argument("--conditions", default="c6,c8,history")
    options.add_argument("--model", help="for writing, reading and judging")
    options.add_argument("--runs", type=Path, help="where run folders are kept")
    options.add_argument("--limit", type=int)
    options.add_argument("--development", action="store_true")
    options.add_argument("--out", type=Path, default=RESULT)
    chosen = options.parse_args(arguments)
    known = read_conditions()
    conditions = {name: known.get(name) for name in chosen.conditions.split(",")}
    model = chosen.model
    found: dict[str, Any] = {"versions": versions(), "development": chosen.development, "data": {}}
    with Parts(read_models().with_roles(encode=model, read=model, judge=model)) as parts, tempfile.TemporaryDirectory() as place:
        found["models"] = {role.value: parts.name(role) for role in Role}
        for number, path in enumerate(chosen.datasets):
            out = chosen.runs / path.stem if chosen.runs else Path(place) / str(number)
            run(Plan(path, tuple(conditions), limit=chosen.limit, development=chosen.development), out, parts, known)
            made = list(rows(RunFolder(out, print), conditions))
            found["data"][path.name] = {"digest": file_digest(path)[:16], "rows": made}
            for row in made:
                lost = ", ".join(f"{row[reason]} {reason}" for reason in WRONG if row[reason])
                print(path.name, row["condition"], row["kind"], f"{row['right']} of {row['scored']} right", lost, sep="  ", flush=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
