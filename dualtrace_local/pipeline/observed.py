"""What a report reads out of a run folder beside answers and verdicts: calibrations, time, and what became of each question's evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dualtrace_local.records import Answer, digest_of
from dualtrace_local.report.details import Observed, Trace
from dualtrace_local.report.questions import EvidenceSession, Page, Reading
from dualtrace_local.report.records import Report

from .calibrate import judge_key, kept
from .folder import KeyedGold, RunFolder

ORDINALS = 64
"""Memories and rounds of an evidence session that are recognised among what was delivered."""

Ledger = Mapping[str, dict[str, Any]]
"""sessions.jsonl by session key."""


def observed(folder: RunFolder, answers: Mapping[str, Sequence[Answer]], golds: Sequence[KeyedGold], ledger: Ledger) -> Observed:
    """Everything that ``report.details`` needs, out of the run's files."""
    manifest = folder.manifest
    by = manifest["fingerprints"].get(f"judge {manifest['judge']}", {})
    judges = _judges(folder)
    return Observed(
        calibrations=kept(judge_key(by["model"], by["prompts"]), folder.path, folder.say) if "prompts" in by else (),
        origins={role: model.get("origin", "") for role, model in manifest["models"].items()},
        views={c: _told(_view(folder, c)) for c in answers},
        seconds=_seconds(folder),
        traces={c: _traces(_view(folder, c), answers[c], golds, ledger) for c in answers},
        opinions={c: opinions for c in answers if len(opinions := _opinions(folder, c, judges)) > 1},
    )


def _view(folder: RunFolder, condition: str) -> dict[str, Any]:
    found: dict[str, Any] = folder.manifest["fingerprints"].get(f"recall {condition}", {})
    return found


def _told(view: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in view.items())


def _seconds(folder: RunFolder) -> dict[str, dict[str, float]]:
    """Wall seconds over all starts: stage, then condition."""
    found: dict[str, dict[str, float]] = {}
    for line in folder.lines("usage.jsonl").read():
        stage = found.setdefault(line["stage"], {})
        stage[line["condition"]] = round(stage.get(line["condition"], 0.0) + line["seconds"], 2)
    return found


def _judges(folder: RunFolder) -> tuple[str, ...]:
    """Everybody who has judged this run, by model or import."""
    return tuple(stage.removeprefix("judge ") for stage in folder.manifest["fingerprints"] if stage.startswith("judge "))


def _opinions(folder: RunFolder, condition: str, judges: Sequence[str]) -> dict[str, dict[str, bool]]:
    found = {name: {v.question_id: v.correct for v in folder.verdicts(condition, name) if v.correct is not None} for name in judges}
    return {name: verdicts for name, verdicts in found.items() if verdicts}


# ---------------------------------------------------------------------------------------------------------- traces


def _traces(view: Mapping[str, Any], answers: Sequence[Answer], golds: Sequence[KeyedGold], ledger: Ledger) -> dict[str, Trace]:
    evidence = {g.gold.question_id: g.evidence for g in golds}
    return {a.question_id: _trace(view, a, evidence[a.question_id], ledger) for a in reversed(answers) if a.question_id in evidence}


def _trace(view: Mapping[str, Any], answer: Answer, evidence: Sequence[str], ledger: Ledger) -> Trace:
    order = answer.ranked or answer.delivered_sessions
    return Trace(
        kept=tuple(_seen(view, ledger.get(key)) for key in evidence),
        places=tuple(order.index(key) + 1 if key in order else 0 for key in evidence),
        ranked=bool(answer.ranked) or not answer.delivered_sessions,
        abstained=answer.abstained,
    )


def _seen(view: Mapping[str, Any], row: dict[str, Any] | None) -> bool:
    """Whether a condition could see anything of a session: rounds whatever the gate said, memories from the condition's minimum on."""
    if row is None or view.get("stored") == "nothing":
        return False
    if view.get("stored") == "rounds":
        return True
    ordered = row["evidence"]["override"] == "remember"
    return bool(row["status"] == "taught" and (ordered or _total(row) >= view.get("minimum", 0)))


def _total(row: Mapping[str, Any]) -> int:
    return sum(row["evidence"][name] for name in ("relevance", "specificity", "explicitness"))


# ----------------------------------------------------------------------------------------------------------- pages


def pages(
    folder: RunFolder, report: Report, answers: Mapping[str, Sequence[Answer]], golds: Sequence[KeyedGold], ledger: Ledger
) -> Iterator[Page]:
    """A page for each question of the report, in its order."""
    keyed = {g.gold.question_id: g for g in reversed(golds)}
    asked = {q.id: q for q in folder.questions()}
    judges = _judges(folder)
    given = {c: {a.question_id: a for a in reversed(answers[c])} for c in answers}
    seen = {c: folder.seen(c) for c in answers}
    verdicts = {c: [{v.question_id: v for v in folder.verdicts(c, name)} for name in judges] for c in answers}
    for row in report.outcomes:
        key, gold, question = row.question_id, keyed[row.question_id], asked.get(row.question_id)
        yield Page(
            question_id=key,
            kind=row.kind,
            abstention=row.abstention,
            question=question.text if question else "",
            asked_on=question.date.strftime("%Y-%m-%d %H:%M (%A)") if question and question.date else "",
            gold=gold.gold.answer_text,
            fault="; ".join(f"{f.what} ({f.source})" for f in report.details.faults if f.question_id == key),
            evidence=tuple(_evidence(ledger.get(session), session) for session in gold.evidence),
            evidence_items=frozenset(digest_of(what, s, n) for s in gold.evidence for what in ("memory", "round") for n in range(ORDINALS)),
            readings=tuple(
                Reading(
                    condition=c,
                    outcome=row.outcomes[c].value,
                    step=report.details.question_steps.get(c, {}).get(key, ""),
                    answer=given[c].get(key),
                    seen=seen[c].get(key, ""),
                    verdicts=tuple((name, by[key]) for name, by in zip(judges, verdicts[c], strict=True) if key in by),
                )
                for c in report.conditions
                if c in answers
            ),
        )


def _evidence(row: dict[str, Any] | None, key: str) -> EvidenceSession:
    if row is None:
        return EvidenceSession(key[:12], "", "not in the ledger", 0, 0)
    status = f"{row['status']}, {row['tier']}" if row["status"] != "empty" else "empty"
    date = (row["date"] or "undated").replace("T", " ")
    return EvidenceSession(row["external_id"] or key[:12], date, status, _total(row), row["memories"])
