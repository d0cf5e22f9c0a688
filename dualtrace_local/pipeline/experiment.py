"""The stages of one experiment in order: teach once, recall per condition, judge, report. Each is resumed where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from dualtrace_local.config import BATCH, Condition, Conditions, Role, TeachSettings
from dualtrace_local.corpus import file_digest, read
from dualtrace_local.domains import prompts
from dualtrace_local.engines.driver import Job
from dualtrace_local.errors import DataError, RunError
from dualtrace_local.judge import PROMPTS as JUDGE_PROMPTS
from dualtrace_local.judge import judge
from dualtrace_local.masking import mask
from dualtrace_local.recall import Reader, recall
from dualtrace_local.records import Answer, Done, Entry, Failure, Question, Rejected, Scope, Session, Usage, digest_of, plain
from dualtrace_local.report import Failed, Header, ModelUse, Report, RunData, Share, TeachTotals, build, write
from dualtrace_local.report.records import APART, OVERALL
from dualtrace_local.search import View, search
from dualtrace_local.store import Store

from .folder import KeyedGold, Meter, RunFolder, tally
from .parts import Parts, versions
from .rounds import embed_rounds
from .teach import Teaching, fingerprint_parts, readable

Protocol = Literal["official", "pooled"]


@dataclass(frozen=True)
class Plan:
    """What to run. ``official``: a question sees its own haystack only (LongMemEval); ``pooled``: the union of all (the paper)."""

    dataset: Path
    conditions: tuple[str, ...] = ("c6", "c7")
    protocol: Protocol = "official"
    hide_later: bool = False
    limit: int | None = None
    settings: TeachSettings = TeachSettings()
    development: bool = False


@dataclass(frozen=True)
class Result:
    """What a command on a run folder did. ``failed``: unreadable or failed sessions and unanswered questions; ``unscored``: no verdict."""

    report: Report
    teach: TeachTotals
    failed: int
    unscored: int


def run(plan: Plan, out: Path, parts: Parts, conditions: Conditions) -> Result:
    """Run or resume an experiment in ``out``.

    Raises RunError, before anything is changed, when the folder belongs to another one, DataError when there is nothing to ask.
    """
    chosen = {name: conditions.get(name) for name in plan.conditions}
    digest = file_digest(plan.dataset)
    taught = {"dataset": digest, "limit": plan.limit, **fingerprint_parts(parts, plan.settings)}
    _check_questions(plan)
    reading = _reading_parts(parts, plan, digest_of(taught))
    with RunFolder.written(out, parts.listener.say, create=True) as folder:
        for stage, fingerprint in (("teach", taught), ("recall", reading), *((f"recall {n}", _view(c)) for n, c in chosen.items())):
            folder.check(stage, fingerprint)
        folder.guard("teach", taught)
        folder.started()
        totals = _teach(plan, folder, parts, digest)
        folder.guard("recall", reading)
        folder.save(protocol=plan.protocol, hide_later=plan.hide_later)
        _save_models(folder, parts, Role.READ)
        embed_rounds(out / "store", parts, Scope(), chosen.values())
        with Store.open(out / "store", parts.embedder, say=parts.listener.say) as store:
            questions = folder.questions()
            for name, condition in chosen.items():
                folder.guard(f"recall {name}", _view(condition))
                told = condition.description + (" (reconstruction: the paper leaves parts open)" if condition.reconstruction else "")
                folder.save(
                    conditions=list(dict.fromkeys([*folder.manifest.get("conditions", []), name])),
                    described={**folder.manifest.get("described", {}), name: told},
                )
                _recall(name, condition, plan, questions, folder, store, parts)
        return replace(_judge(folder, parts), teach=totals)


def _save_models(folder: RunFolder, parts: Parts, *roles: Role) -> None:
    """Note which models played these roles, for the report."""
    used = {role.value: parts.identity(role) | {"engine": parts.spec(role).engine} for role in roles}
    folder.save(models={**folder.manifest.get("models", {}), **used})


def _check_questions(plan: Plan) -> None:
    """Find out before hours of teaching that a file holds chats without questions. Raises DataError."""
    problem = ""
    for entry in read(plan.dataset, limit=plan.limit):
        if isinstance(entry, Rejected):
            problem = problem or f" ({entry})"
        elif entry.question is not None:
            return
    raise DataError(f"{plan.dataset.name} holds no question that can be read{problem}; `dualtrace teach` is for chats without questions")


# ------------------------------------------------------------------------------------------------------- teach


def _teach(plan: Plan, folder: RunFolder, parts: Parts, digest: str) -> TeachTotals:
    questions: dict[str, Question] = {}
    golds: dict[str, KeyedGold] = {}
    later: dict[str, bool] = {}
    texts: set[str] = set()
    occurrences = 0

    def seen(entry: Entry, masked: tuple[Session, ...]) -> None:
        nonlocal occurrences
        occurrences += len(masked)
        texts.update(digest_of([(t.role, t.text) for t in s.turns]) for s in masked)
        if entry.question is not None and entry.gold is not None:
            keys = tuple(s.key for s in masked)
            questions[entry.question.id] = replace(entry.question, text=mask(entry.question.text), haystack=keys)
            golds[entry.question.id] = KeyedGold(entry.gold, tuple(dict.fromkeys(keys[i] for i in entry.gold.evidence)))
            later[entry.question.id] = any(s.date and entry.question.date and s.date > entry.question.date for s in masked)

    with Store.open(folder.path / "store", parts.embedder, write=True, create=True, say=parts.listener.say) as store:
        teaching = Teaching(store, parts, plan.settings, scope=Scope(), seen=seen, committed=Meter(folder, "teach").note)
        totals = teaching.run(readable([plan.dataset], plan.limit))
        store.set_haystacks({q.id: q.haystack for q in questions.values()})
        ledger = store.sessions()
    folder.write_questions(questions.values(), golds.values())
    without_words = (replace(row, evidence=replace(row.evidence, basis=())) for row in ledger)
    folder.lines("sessions.jsonl").replace(plain(row) for row in without_words)
    _save_models(folder, parts, Role.ENCODE, Role.EMBED)
    spec = parts.spec(Role.ENCODE)
    folder.save(
        dataset=plan.dataset.name,
        dataset_sha256=digest,
        later_questions=sum(later.values()),
        distinct_sessions=len(texts),
        session_occurrences=occurrences,
        development=plan.development or folder.manifest.get("development", False),
        failed_records=totals.failed,
        gate=spec.gate.value,
        window=spec.window,
        seed=parts.seed,
        versions=versions(),
        prompts={name: prompts.digest(name) for name in prompts.names()},
        settings={k: str(v) for k, v in plan.settings.model_dump(mode="json").items()},
    )
    return totals


# ------------------------------------------------------------------------------------------------------ recall


def _reading_parts(parts: Parts, plan: Plan, taught: str) -> dict[str, Any]:
    """What all conditions of a run share, since a table names one reader and one protocol."""
    return {
        "teach": taught,
        "reader": parts.identity(Role.READ),
        "context_tokens": parts.spec(Role.READ).budgets.context,
        "prompts": {name: prompts.digest(name) for name in Reader.PROMPTS},
        "protocol": plan.protocol,
        "hide_later": plan.hide_later,
        "seed": parts.seed,
    }


def _view(condition: Condition) -> dict[str, Any]:
    """What makes a condition: all of its entry but the words about it."""
    return condition.model_dump(mode="json", exclude={"description", "reconstruction"})


def _recall(
    name: str, condition: Condition, plan: Plan, questions: Sequence[Question], folder: RunFolder, store: Store, parts: Parts
) -> None:
    """Answer what has no answer yet under one condition."""
    done = {a.question_id for a in folder.answers(name)}
    pending = [q for q in questions if q.id not in done]
    reader = Reader(store.secret, parts.count(Role.READ), parts.seed)
    names = {row.key: row.external_id or row.key for row in store.sessions()}
    everything = frozenset(key for q in questions for key in q.haystack)
    budget = parts.spec(Role.READ).budgets.context

    @lru_cache(maxsize=1)  # questions about the same sessions follow each other
    def seen_by(visible: frozenset[str], hide_after: datetime | None) -> View:
        return View(store, Scope(), condition, visible, hide_after, name)

    def jobs() -> Iterator[Job]:
        for question in pending:
            visible = frozenset(question.haystack) if plan.protocol == "official" else everything
            view = seen_by(visible, question.date if plan.hide_later else None)
            delivered = search(view, question, parts.embedder, budget, parts.count(Role.READ))
            yield Job(question.id, partial(recall, question, delivered, reader))

    def keep(batch: Sequence[Done]) -> None:
        folder.add_answers(name, (_with_names(done.value, names) for done in batch))

    _stage("recall", name, Role.READ, (len(pending), len(questions)), jobs, keep, folder, parts)
    folder.export_hypotheses(name)


def _with_names(answer: Answer, names: dict[str, str]) -> Answer:
    """Sources as people know them: the session's own id instead of its key."""
    return replace(answer, sources=tuple(replace(s, session_id=names.get(s.session_id, s.session_id)) for s in answer.sources))


def _stage(
    stage: str,
    condition: str,
    role: Role,
    pending: tuple[int, int],
    jobs: Callable[[], Iterator[Job]],
    keep: Callable[[Sequence[Done]], None],
    folder: RunFolder,
    parts: Parts,
) -> None:
    """Run jobs, keep finished ones and their usage in durable batches, note failures.

    ``pending``: how many items are left, and of how many. Nothing is started when nothing is left.
    """
    (left, total), listener = pending, parts.listener
    if not left:
        return
    if left < total:
        listener.say(f"resumed: {stage} {condition}: {total - left} of {total} are there already and stay")
    listener.stage(f"{stage} {condition}", left)
    batch: list[Done] = []
    usage: dict[str, Usage] = {}
    meter = Meter(folder, stage, condition)

    def flush() -> None:
        keep(batch)
        meter.note(usage)
        batch.clear()
        usage.clear()

    try:
        for result in parts.engine(role).run(jobs(), window=parts.spec(role).window):
            tally(usage, result.usage)
            if isinstance(result, Failure):
                failure = {"stage": stage, "condition": condition, "key": result.key, "reason": result.reason, "raw": result.raw}
                folder.lines("failures.jsonl").append([failure])
                listener.say(f"{stage} {condition}:{result.key}: {result.reason}; tried again by the next start")
            else:
                batch.append(result)
            if len(batch) >= BATCH:
                flush()
            listener.advance()
    finally:
        flush()
        listener.end()


# ------------------------------------------------------------------------------------------------------- judge


def judge_run(out: Path, parts: Parts) -> Result:
    """Judge every answer that has no verdict by the judge model yet, then report."""
    with RunFolder.written(out, parts.listener.say) as folder:
        return _judge(folder, parts)


def _judge(folder: RunFolder, parts: Parts) -> Result:
    by = parts.identity(Role.JUDGE)["name"]
    model = {"model": parts.identity(Role.JUDGE), "prompts": {n: prompts.digest(n) for n in JUDGE_PROMPTS}, "seed": parts.seed}
    _check_taught(folder)
    folder.guard(f"judge {by}", model)
    golds = {g.gold.question_id: g.gold for g in folder.golds()}
    for condition in folder.manifest["conditions"]:
        answers = {a.question_id: a for a in reversed(folder.answers(condition)) if a.question_id in golds}
        given = {v.question_id for v in folder.verdicts(condition, by) if v.correct is not None}
        pending = [answers[q] for q in golds if q in answers and q not in given]

        def jobs(pending: Sequence[Answer] = pending) -> Iterator[Job]:
            return (Job(a.question_id, partial(judge, a, golds[a.question_id], by, folder.secret, parts.seed)) for a in pending)

        def keep(batch: Sequence[Done], condition: str = condition) -> None:
            folder.verdict_lines(condition, by).append(plain(done.value) for done in batch)

        _stage("judge", condition, Role.JUDGE, (len(pending), len(answers)), jobs, keep, folder, parts)
    folder.save(judge=by)
    _save_models(folder, parts, Role.JUDGE)
    return _report(folder)


def _check_taught(folder: RunFolder) -> None:
    if not folder.manifest.get("conditions"):
        raise RunError(f"{folder.path}: nothing is answered yet; `dualtrace run` with this --out goes on where it stopped")


# ------------------------------------------------------------------------------------------------------ report


def report_run(out: Path, say: Callable[[str], None]) -> Result:
    """Build the report from what lies in the run folder; no model is needed."""
    return _report(RunFolder(out, say))


def _report(folder: RunFolder) -> Result:
    _check_taught(folder)
    manifest = folder.manifest
    if "judge" not in manifest:
        raise RunError(f"{folder.path}: nothing is judged yet; `dualtrace judge {folder.path}` does that")
    conditions: list[str] = manifest["conditions"]
    golds = folder.golds()
    ledger = {row["key"]: row for row in folder.lines("sessions.jsonl").read()}
    answers = {c: folder.answers(c) for c in conditions}
    answered = {(c, a.question_id) for c in conditions for a in answers[c]}
    totals = _totals(folder, ledger)
    data = RunData(
        header=_header(folder),
        golds=tuple(g.gold for g in golds),
        answers=answers,
        verdicts={c: folder.verdicts(c, manifest["judge"]) for c in conditions},
        failures=tuple(
            Failed("recall", line["key"], line["reason"], line["condition"])
            for line in _last_failures(folder).values()
            if line["stage"] == "recall" and (line["condition"], line["key"]) not in answered
        ),
        teach=totals,
        recall_usage=folder.usage("recall"),
        judge_usage=folder.usage("judge"),
        evidence_kept=_kept(golds, ledger),
        retrieval={c: _retrieval(answers[c], golds) for c in conditions},
    )
    report = build(data)
    write(report, folder.path / "report")
    overall = [row for row in report.rows if row.kind in (OVERALL, *APART)]
    failed = totals.failed + sum(row.failed + row.missing for row in overall)
    return Result(report, totals, failed, sum(row.unscored for row in overall))


def _last_failures(folder: RunFolder) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(f["stage"], f["condition"], f["key"]): f for f in folder.lines("failures.jsonl").read()}


def _totals(folder: RunFolder, ledger: dict[str, dict[str, Any]]) -> TeachTotals:
    """Totals of the whole run from the ledger, whatever number of starts it took."""
    status = [row["status"] for row in ledger.values()]
    failed = folder.manifest.get("failed_records", 0)
    each = {name: status.count(name) for name in ("taught", "dropped", "empty")}
    tiers = {t: sum(row["tier"] == t and row["status"] != "empty" for row in ledger.values()) for t in {r["tier"] for r in ledger.values()}}
    return TeachTotals(
        read=len(ledger) + failed,
        **each,
        failed=failed,
        memories=sum(row["memories"] for row in ledger.values()),
        with_scene=sum(row["with_scene"] for row in ledger.values()),
        tiers={t: n for t, n in sorted(tiers.items()) if n},
        usage=folder.usage("teach").get("", {}),
        seconds=folder.seconds().get("teach", 0.0),
    )


def _kept(golds: Sequence[KeyedGold], ledger: Mapping[str, dict[str, Any]]) -> Share:
    """Of the evidence sessions that the gate decided on, each counted once, those it kept."""
    decided = {key: ledger[key]["status"] for g in golds for key in g.evidence if key in ledger}
    return Share(sum(status == "taught" for status in decided.values()), len(decided))


def _retrieval(answers: Sequence[Answer], golds: Sequence[KeyedGold]) -> dict[str, Share]:
    """Of each question's evidence sessions, how many had a memory among the delivered."""
    evidence = {g.gold.question_id: set(g.evidence) for g in golds if g.evidence and not g.gold.abstention}
    return {
        a.question_id: Share(len(evidence[a.question_id] & set(a.delivered_sessions)), len(evidence[a.question_id]))
        for a in answers
        if a.question_id in evidence
    }


def _header(folder: RunFolder) -> Header:
    m = folder.manifest
    return Header(
        dataset=m["dataset"],
        dataset_sha256=m["dataset_sha256"],
        protocol=m["protocol"],
        hide_later=m["hide_later"],
        later_questions=m["later_questions"],
        distinct_sessions=m["distinct_sessions"],
        session_occurrences=m["session_occurrences"],
        models=tuple(ModelUse(role, v["name"], v["digest"], v["engine"]) for role, v in m["models"].items()),
        gate=m["gate"],
        versions=m["versions"],
        prompts=m["prompts"],
        settings={**m["settings"], **{f"condition {name}": told for name, told in m["described"].items()}},
        seed=m["seed"],
        window=m["window"],
        seconds=folder.seconds(),
        development=m["development"],
    )
