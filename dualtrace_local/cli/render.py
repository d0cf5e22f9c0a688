"""Results as tables for people and as plain values for ``--json``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dualtrace_local.config import Models, ModelSpec
from dualtrace_local.domains.prompts import visible
from dualtrace_local.records import OWNER, Answer, Memory, Round, Session, plain

from .common import roles_of, say

if TYPE_CHECKING:
    from dualtrace_local.pipeline.demo import Story
    from dualtrace_local.pipeline.experiment import Result
    from dualtrace_local.pipeline.health import Health
    from dualtrace_local.pipeline.remember import Remembered
    from dualtrace_local.report import Comparison, TeachTotals
    from dualtrace_local.store import LedgerRow, Store


WIDTH = 118
"""Columns where stdout is no terminal."""


class _Console(Console):
    """Shows strings without invisible and control characters, which could forge what a terminal shows."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(visible(o) if isinstance(o, str) else o for o in objects), **options)


class _Table(Table):
    """The same for cells."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(visible(c) if isinstance(c, str) else c for c in cells), **options)


def out() -> Console:
    """The console for results. Text from chats is never read as markup."""
    return _Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else WIDTH)


def table(*columns: str, title: str = "") -> Table:
    """A plain table; columns that begin with ``>`` are set to the right."""
    made = _Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in columns:
        made.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    return made


def opened(path: Path) -> Store:
    """A store for reading; no model is needed."""
    from dualtrace_local.store import Store

    return Store.open(path, None, say=say)


def fields(values: Mapping[str, Any]) -> None:
    """Names and values, one a line."""
    made = table("", "")
    for name, value in values.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
        made.add_row(name.replace("_", " "), shown)
    out().print(made)


# ------------------------------------------------------------------------------------------------------ teach, ask


def totals_json(totals: TeachTotals) -> dict[str, Any]:
    """Counts of sessions, tokens, seconds."""
    names = ("read", "taught", "dropped", "empty", "unchanged", "forgotten", "failed", "memories", "with_scene")
    spent = totals.spent
    return {name: getattr(totals, name) for name in names} | {
        "prompt_tokens": spent.prompt_tokens,
        "cached_tokens": spent.cached_tokens,
        "completion_tokens": spent.completion_tokens,
        "seconds": round(totals.seconds, 2),
        "usage": plain(totals.usage),
        "left_out": totals.left_out,
    }


def totals(found: TeachTotals) -> None:
    """What a teach did."""
    counts = " + ".join(f"{getattr(found, n)} {n}" for n in ("taught", "dropped", "empty", "unchanged", "forgotten", "failed"))
    console = out()
    console.print(f"{found.read} sessions read = {counts}")
    console.print(f"{found.memories} new memories, {found.with_scene} of them with a scene")
    if found.left_out:
        console.print(f"left out: {', '.join(f'{n:,} {what}' for what, n in found.left_out.items())}")
    if found.read and not found.taught + found.dropped + found.empty + found.failed:
        console.print("Everything was in the store already; nothing was added.")
    if (decided := found.taught + found.dropped) and found.usage:
        spent = found.spent
        console.print(
            f"{spent.prompt_tokens / decided:.0f} prompt tokens a session ({spent.cached_tokens / decided:.0f} of them from the cache), "
            f"{spent.completion_tokens / decided:.0f} written; {found.seconds:.0f} s"
        )


def answer_json(found: Answer) -> dict[str, Any]:
    """The answer with state, confidence and sources."""
    return {
        "question": found.question,
        "state": found.state.value,
        "confidence": found.confidence,
        "answer": found.text,
        "abstained": found.abstained,
        "reason": found.reason,
        "condition": found.condition,
        "asked_on": found.asked_on,
        "notes": found.notes,
        "sources": plain(found.sources),
    }


def answer(found: Answer) -> None:
    """The answer and where it comes from."""
    console = out()
    console.print(Text(visible(found.text), style="bold"), soft_wrap=True)
    console.print(f"state {found.state.value}, confidence {found.confidence}" + (f" ({found.reason})" if found.reason else ""))
    for source in found.sources:
        said_by = source.said_by.replace(" and ", " and the ")
        kind, what = ("round", f"verbatim round, said by the {said_by}") if said_by else ("memory", source.anchor)
        line = f"  {source.date or 'undated'}  {what}  session {source.session_id}  {kind} {source.memory_id[:12]}"
        console.print(line, soft_wrap=True)


def remembered_json(found: Remembered) -> dict[str, Any]:
    """What became of a statement, and what is stored of it."""
    return {
        "status": found.status,
        "tier": found.tier.value,
        "session": found.session.key,
        "date": found.session.day_and_time,
        "masked": found.masked,
        "reason": "" if found.memories else BECAME[found.status],
        "memories": [memory_json(m) for m in found.memories],
    }


BECAME = {
    "dropped": "no sentence of it tells anything that could be kept; only the verbatim round is stored",
    "unchanged": "it was taught before, and no sentence of it was kept",
    "refused": "not stored: its own words ask not to be remembered",
    "forgotten": "not stored: it was removed by order and does not come back",
}
"""What is said of a statement that left no memory, by status."""


def remembered(found: Remembered) -> None:
    """The memories of a statement whole, or why there are none."""
    console = out()
    if not found.memories:
        console.print(BECAME[found.status], soft_wrap=True)
    else:
        before = " (it was there already; nothing was added)" if found.status == "unchanged" else ""
        console.print(f"remembered as of {found.session.day_and_time}{before}", soft_wrap=True)
    for kept in found.memories:
        memory(kept, found.session)
    if found.masked:
        console.print(f"masked before anything was stored: {found.masked} credential{'s' if found.masked > 1 else ''}")


# --------------------------------------------------------------------------------------------------------- memories


def memory_json(found: Memory) -> dict[str, Any]:
    """One memory as plain values."""
    values: dict[str, Any] = plain(found)
    return values | {
        "id": found.id,
        "date": found.date.strftime("%Y-%m-%d %H:%M") if found.date else "",
        "confidence": found.confidence,
        "fact": found.fact,
        "evidence": plain(found.evidence) | {"total": found.evidence.total},
        "instruction_like": _instruction_like(found),
    }


def _instruction_like(found: Memory) -> bool:
    from dualtrace_local.grounding import orders_a_model

    return any(orders_a_model(text) for c in found.components for text in (c.text, c.quote))


def memories(found: Sequence[Memory]) -> None:
    """A line a memory."""
    made = table("id", "date", "anchor", ">score", "trace", "fact")
    for m in found:
        made.add_row(
            m.id[:12],
            f"{m.date:%Y-%m-%d}" if m.date else "",
            m.anchor,
            str(m.evidence.total),
            "dual" if m.scene else "fact",
            m.fact,
        )
    out().print(made)
    out().print(f"{len(found)} memories, {sum(bool(m.scene) for m in found)} with a scene")


def memory(found: Memory, source: LedgerRow | Session | None = None, turns: Sequence[Round] = ()) -> None:
    """One memory whole, with the rounds that it rests on."""
    e = found.evidence
    lines = [f"- {c.text}" + (" (unsure)" if c.hedged else "") for c in found.components]
    dates = [
        f"  {event.spoken}: {event.day}{' to ' + event.end if event.end else ''}"
        for c in found.components
        for event in c.events
        if event.day
    ]
    where = f"{source.source}:{source.record}, session {source.external_id}" if source else found.session_key
    text = [
        f"{found.info_type}, {found.category}, confidence {found.confidence}, {found.tier.value}",
        f"said on {found.date:%Y-%m-%d}" if found.date else "said on an unknown day",
        f"evidence {e.total} of 6: relevance {e.relevance}, specificity {e.specificity}, explicitness {e.explicitness}"
        + ("; kept because the user asked for it" if e.override == "remember" else ""),
        f"from {where}",
        *(["contains instruction-like text; it is read as data"] if _instruction_like(found) else []),
        "",
        "FACT",
        *lines,
        *dates,
        "",
        "SCENE",
        found.scene or f"none ({found.scene_refused or 'not asked for'})",
        "",
        "THE USER'S WORDS",
        *dict.fromkeys(f"> {c.quote}{' (a correction)' if c.said_by == OWNER else ''}" for c in found.components),
    ]
    for said in turns:
        text += ["", f"ROUND {said.ordinal + 1}", said.text]
    if found.version:
        text.insert(1, f"{found.status}, changed {found.version} times; see `dualtrace memory history {found.id[:12]}`")
    out().print(Panel(Text(visible("\n".join(text))), title=Text(f"{found.anchor}  {found.id[:12]}"), title_align="left"))


def stats_json(sessions: Sequence[LedgerRow], found: Sequence[Memory]) -> dict[str, Any]:
    """Counts of a scope."""
    return {
        "sessions": len(sessions),
        "by_status": dict(Counter(row.status for row in sessions)),
        "memories": len(found),
        "with_scene": sum(bool(m.scene) for m in found),
        "components": sum(len(m.components) for m in found),
        "scenes_refused": dict(Counter(m.scene_refused for m in found if m.scene_refused)),
        "by_type": dict(Counter(m.info_type for m in found)),
        "by_category": dict(Counter(m.category for m in found).most_common()),
        "sessions_by_evidence": {str(k): v for k, v in sorted(Counter(s.evidence.total for s in sessions if s.status != "empty").items())},
        "sessions_by_override": dict(Counter(s.evidence.override for s in sessions if s.evidence.override)),
        "memories_by_evidence": {str(k): v for k, v in sorted(Counter(m.evidence.total for m in found).items())},
        "sentences_left_out": dict(Counter(reason for s in sessions for reason in s.dropped_sentences).most_common()),
    }


def stats(found: Mapping[str, Any]) -> None:
    """Counts for people."""
    fields(found)


# ------------------------------------------------------------------------------------------------------ experiments


def comparison(rows: Sequence[Comparison], title: str) -> Table:
    """Accuracy by kind and condition; every line adds up to n."""
    made = table(
        "kind",
        "condition",
        ">right",
        ">scored",
        ">unscored",
        ">failed",
        ">missing",
        ">n",
        ">accuracy",
        "95 % interval",
        title=title,
    )
    for row in rows:
        share = "-" if row.accuracy is None else f"{100 * row.accuracy:.1f} %"
        interval = "-" if row.low is None or row.high is None else f"{100 * row.low:.1f} to {100 * row.high:.1f}"
        counts = (row.correct, row.scored, row.unscored, row.failed, row.missing, row.n)
        made.add_row(row.kind, row.condition, *(str(c) for c in counts), share, interval)
    return made


def result_json(found: Result, folder: Path) -> dict[str, Any]:
    """The comparison, the totals, and where the whole report lies."""
    from dualtrace_local.report import summary_table

    return {
        "run": str(folder),
        "report": str(folder / "report" / "report.json"),
        "teach": totals_json(found.teach),
        "failed": found.failed,
        "unscored": found.unscored,
        "rows": plain(summary_table(found.report)),
        "pairs": plain(found.report.pairs),
        "problems": list(found.report.problems),
    }


def result(found: Result, folder: Path) -> None:
    """The comparison table and the paired difference."""
    from dualtrace_local.report import summary_table

    header = found.report.header
    console = out()
    console.print()
    title = f"{header.dataset}, {header.protocol} protocol, read by {header.model('read')}, judged by {header.model('judge')}"
    console.print(comparison(summary_table(found.report), title))
    for pair in found.report.pairs:
        p = pair.result
        d = p.difference
        if d.value is not None and d.low is not None and d.high is not None:
            a = p.agreement
            console.print(
                f"{pair.first} - {pair.second}: {100 * d.value:+.1f} points [{100 * d.low:+.1f}, {100 * d.high:+.1f}], n = {a.n}; "
                f"{a.only_first} only {pair.first}, {a.only_second} only {pair.second}"
            )
    for problem in found.report.problems:
        say(problem)
    console.print(f"whole report: {folder / 'report' / 'report.md'}", soft_wrap=True)


def story_json(told: Story, seconds: float) -> dict[str, Any]:
    """The demo as one document."""
    return result_json(told.result, told.out) | {
        "sessions": len(told.sessions),
        "kept": told.kept,
        "memory": memory_json(told.memory) if told.memory else None,
        "answer": answer_json(told.answer) if told.answer else None,
        "demo_seconds": round(seconds, 1),
    }


def story(told: Story, seconds: float) -> None:
    """The demo for people: gate, one memory, one answer, the comparison."""
    console = out()
    console.print(f"\n1. The gate read {len(told.sessions)} sessions and kept {told.kept}: the others told nothing about the user.")
    if told.memory:
        console.print("\n2. What is kept is written twice, as a fact and as a scene. One memory in full:\n")
        memory(told.memory, next((row for row in told.sessions if row.key == told.memory.session_key), None))
    if told.answer:
        console.print(f"\n3. A question, months later ({told.answer.asked_on[:10]}): {told.answer.question}\n")
        answer(told.answer)
    console.print("\n4. The same questions with facts and scenes (c6) and with the facts alone (c7):")
    result(told.result, told.out)
    console.print("These are twelve invented questions: they show that everything works, not how good a model is.")
    console.print(f"The demo took {seconds:.0f} s.")


# ----------------------------------------------------------------------------------------------------------- machine


def models_json(found: Models, here: Mapping[str, bool]) -> dict[str, Any]:
    """The models with their licences."""
    return {
        name: {
            "engine": spec.engine,
            "licence": spec.licence,
            "origin": spec.origin,
            "gate": spec.gate.value,
            "context": spec.context,
            "card": spec.card,
            "quantisation": spec.quantisation,
            "thinking_off": _thinking_off(spec),
            "note": spec.note,
            "here": here[name],
        }
        for name, spec in found.models.items()
        if name in here
    }


def _thinking_off(spec: ModelSpec) -> bool:
    """Whether the model is told not to reason before it answers."""
    return spec.chat_template_kwargs.get("enable_thinking") is False


def models(found: Models, here: Mapping[str, bool]) -> None:
    """A line a model, for those in ``here``; then what is to be known about them."""
    roles = {name: [role for role, named in roles_of(found).items() if named == name] for name in here}
    made = table("model", "roles", ">card", ">context", "weights", "thinking", "gate", "licence", "files")
    for name, there in here.items():
        spec = found.models[name]
        files = "here" if there and spec.has_files else "not here" if spec.has_files else "none needed"
        gate = spec.gate.value if spec.engine != "sentence-transformers" else ""
        card = f"{spec.card} GB" if spec.card else ""
        thinking = "off" if _thinking_off(spec) else ""
        made.add_row(name, ", ".join(roles[name]), card, str(spec.context), spec.quantisation, thinking, gate, spec.licence, files)
    console = out()
    console.print(made)
    if noted := {name: found.models[name].note for name in here if found.models[name].note}:
        console.print()
        fields(noted)
    if not all(here.values()):
        console.print("\nWhat is not here is fetched with: dualtrace models pull NAME")


def checks(found: Mapping[str, Sequence[str]]) -> None:
    """Good, or what is wrong, a model a line."""
    for name, problems in found.items():
        out().print(f"{name}: {'; '.join(problems) if problems else 'good'}")


def health_json(found: Health) -> dict[str, Any]:
    """The findings."""
    return {"good": found.good, "findings": plain(found.findings)}


def health(found: Health) -> None:
    """The findings, and what to do."""
    made = table("", "found", "to do")
    for finding in found.findings:
        made.add_row(finding.what, finding.value, finding.remedy or finding.advice)
    out().print(made)
