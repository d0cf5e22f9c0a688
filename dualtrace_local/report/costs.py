"""What teaching and answering took: tokens, calls and seconds a session and a question, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Iterable

from dualtrace_local.records import Usage

from .cells import Section, Table, number, percent
from .records import Report, TeachTotals, TokenRow

OF_SCENES = ("anchor", "scene")
"""Kinds of request that are counted apart, so that the cost of the fact-only control is that of gate and facts alone."""

WITHOUT, WITH = "gate and facts (c7)", "all (c6)"

_HEADS = ("calls", "prompt", "of it cached", "completion")


def sessions_decided(report: Report) -> int:
    """Sessions that the gate decided on: those that cost anything."""
    return report.teach.taught + report.teach.dropped


def teach_costs(report: Report) -> dict[str, Usage]:
    """Teaching by what it is for: each kind of request, then what the fact-only control needs, then all."""
    kinds = dict(report.teach.usage)
    if not kinds:
        return {}
    return kinds | {WITHOUT: _sum(u for kind, u in kinds.items() if kind not in OF_SCENES), WITH: _sum(kinds.values())}


def question_costs(report: Report) -> dict[str, tuple[int, Usage]]:
    """By condition: how many questions were answered, and what recall took for all of them."""
    answered = {s.condition: s.context_tokens.n for s in report.summaries}
    return {c: (n, _sum(t.usage for t in report.tokens if t.stage == "recall" and t.condition == c)) for c, n in answered.items()}


def costs(report: Report) -> Section:
    """The section: a session, a question, the context, the paper's figures, and the sums they were worked out from."""
    sessions = sessions_decided(report)
    teach = Table(
        ("request", *(f"{head} a session" for head in _HEADS)),
        tuple((kind, *_each(usage, sessions)) for kind, usage in teach_costs(report).items()),
    )
    seconds = report.details.seconds.get("recall", {})
    context = {s.condition: s.context_tokens for s in report.summaries}
    recall = Table(
        ("condition", "answers", *(f"{head} a question" for head in _HEADS), "seconds", "context mean", "median", "95th percentile"),
        tuple(
            (
                name,
                str(n),
                *_each(usage, n),
                number(seconds[name] / n, 1) if n and name in seconds else "-",
                *map(number, (context[name].mean, context[name].median, context[name].p95)),
            )
            for name, (n, usage) in question_costs(report).items()
        ),
    )
    stored = report.teach
    whole = f"Teaching took {number(report.header.seconds.get('teach'), 1)} s in all"
    notes = (
        (
            f"Means over {number(sessions)} sessions that the gate decided on, and over the answered questions. "
            "What comes from the prefix cache is part of prompt."
        ),
        (
            f"The line {WITHOUT} leaves out requests of the kinds {' and '.join(OF_SCENES)}, which have lines of their own. "
            "The facts that c7 reads here carry an anchor all the same."
        ),
        f"{whole}, {number(stored.seconds / sessions, 2)} s a session." if sessions and stored.seconds else f"{whole}.",
        f"Inserts: {number(stored.memories)} memories, {_part(stored.with_scene, stored.memories)} of them with a scene.",
        *_joint(report.joint),
        "Context: tokens of what was delivered, without instructions and question. Seconds are wall time with many questions in flight.",
    )
    return Section("Tokens and cost", notes, (teach, recall, _beside(report), _sums(report.tokens)))


def _joint(totals: TeachTotals | None) -> tuple[str, ...]:
    """What c6-joint's own teaching took, as a line."""
    if totals is None:
        return ()
    cost = _total(totals.spent, totals.taught + totals.dropped)
    scenes = _part(totals.with_scene, totals.memories)
    return (f"Taught jointly for c6-joint: {cost} tokens a session, {number(totals.memories)} memories, {scenes} of them with a scene.",)


def _beside(report: Report) -> Table:
    """The paper's figures with their source, ours for the same conditions in the lines below."""
    rows = []
    coverage, sessions = report.gate.coverage, sessions_decided(report)
    teach, recall = teach_costs(report), question_costs(report)
    for name, cost in report.published.costs.items():
        theirs = (f"{number(t.prompt)} + {number(t.completion)} = {number(t.total)}" for t in (cost.teach, cost.recall))
        dual = "-" if cost.dual is None else f"{cost.dual:.1f} %"
        rows.append((f"{name}, paper", *theirs, f"{cost.coverage:.1f} %", number(cost.inserts), dual))
        if name in report.conditions:
            of_scenes = name != "c7"
            ours = teach.get(WITH if of_scenes else WITHOUT, Usage())
            n, asked = recall[name]
            stored = report.teach
            rows.append(
                (
                    f"{name}, ours",
                    _total(ours, sessions),
                    _total(asked, n),
                    percent(coverage.value),
                    number(stored.memories),
                    _part(stored.with_scene, stored.memories) if of_scenes else "-",
                )
            )
    source = f"{report.published.source}, section 4.5"
    heads = (source, "a session, prompt + completion", "a question, prompt + completion", "coverage", "inserts", "with scene")
    return Table(heads, tuple(rows))


def _sums(tokens: Iterable[TokenRow]) -> Table:
    return Table(
        ("stage", "condition", "request", "calls", "prompt tokens", "of them cached", "completion tokens"),
        tuple(
            (t.stage, t.condition or "-", t.kind, *map(number, (u.calls, u.prompt_tokens, u.cached_tokens, u.completion_tokens)))
            for t in tokens
            for u in (t.usage,)
        ),
    )


def _sum(parts: Iterable[Usage]) -> Usage:
    return sum(parts, Usage())


def _each(usage: Usage, n: int) -> tuple[str, ...]:
    if not n:
        return ("-",) * len(_HEADS)
    counts = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    return (number(usage.calls / n, 2), *(number(count / n) for count in counts))


def _total(usage: Usage, n: int) -> str:
    if not n or not usage.calls:
        return "-"
    prompt, completion = round(usage.prompt_tokens / n), round(usage.completion_tokens / n)
    return f"{number(prompt)} + {number(completion)} = {number(prompt + completion)}"


def _part(part: int, whole: int) -> str:
    return percent(part / whole) if whole else "-"
