"""The stages of one experiment in order: teach once, recall per condition, judge, report. Each is resumed where it stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dualtrace_local.config import Conditions, Role, TeachSettings
from dualtrace_local.corpus import file_digest, read
from dualtrace_local.corpus.known import release_of
from dualtrace_local.domains import prompts
from dualtrace_local.engines.driver import Job
from dualtrace_local.errors import DataError, RunError
from dualtrace_local.judge import judge, shaped_by
from dualtrace_local.masking import mask, mask_value
from dualtrace_local.records import Answer, Done, Entry, Question, Rejected, Scope, Session, digest_of, plain
from dualtrace_local.report import Failed, Header, ModelUse, Report, RunData, Share, TeachTotals, build, write
from dualtrace_local.report.records import APART, OVERALL
from dualtrace_local.store import Store

from .calibrate import Imported, import_results
from .files import write_json
from .folder import KeyedGold, Meter, RunFolder
from .keys import embed_keys
from .observed import observed, pages
from .parts import Parts, versions
from .recalling import Protocol, answer, reading_parts, view_parts
from .sample import Sample
from .stages import work_through
from .teach import Sources, Teaching, fingerprint_parts, readable

STORES = {"once": "store", "jointly": "store-joint"}
"""Folders of the stores of a run, by how a condition wants them taught."""


@dataclass(frozen=True)
class Plan:
    """What to run. ``official``: a question sees its own haystack only (LongMemEval); ``pooled``: the union of all (the paper).

    ``sample`` is a draw from the dataset, None asks every question.
    """

    dataset: Path
    conditions: tuple[str, ...] = ("c6", "c7")
    protocol: Protocol = "official"
    hide_later: bool = False
    limit: int | None = None
    settings: TeachSettings = TeachSettings()
    development: bool = False
    sample: Sample | None = None

    def identity(self, digest: str) -> dict[str, Any]:
        """What is taught and asked, for fingerprints; ``digest`` is the dataset's."""
        return {"dataset": digest, "limit": self.limit, **({"sample": self.sample.digest} if self.sample else {})}

    def sources(self) -> Sources:
        """The sessions to teach. Raises DataError when the dataset cannot be read."""
        return readable([self.dataset], self.limit, frozenset(self.sample.ids) if self.sample else None)


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
    taught = {**plan.identity(digest), **fingerprint_parts(parts, plan.settings)}
    _check_questions(plan)
    reading = reading_parts(parts, plan.protocol, plan.hide_later, digest_of(taught))
    together = {**plan.identity(digest), **fingerprint_parts(parts, plan.settings, jointly=True)}
    jointly = {"teach jointly": together} if any(c.taught == "jointly" for c in chosen.values()) else {}
    views = {n: view_parts(c, parts, digest_of(together)) for n, c in chosen.items()}
    fingerprints = {"teach": taught, **jointly, "recall": reading, **{f"recall {n}": view for n, view in views.items()}}
    with RunFolder.written(out, parts.listener.say, create=True) as folder:
        for stage, fingerprint in fingerprints.items():
            folder.check(stage, fingerprint)
        for stage in ("teach", *jointly):
            folder.guard(stage, fingerprints[stage])
        folder.started()
        if plan.sample:
            write_json(out / "sample.json", plan.sample.document(plan.dataset.name, digest))
        totals = _teach(plan, folder, parts, digest)
        folder.guard("recall", reading)
        folder.save(protocol=plan.protocol, hide_later=plan.hide_later)
        _save_models(folder, parts, Role.READ)
        failed = _teach_jointly(plan, folder, parts) if jointly else 0
        embed_keys(out / STORES["once"], parts, Scope(), [c for c in chosen.values() if c.taught == "once"])
        for name, condition in chosen.items():
            folder.guard(f"recall {name}", views[name])
            folder.save(
                conditions=list(dict.fromkeys([*folder.manifest.get("conditions", []), name])),
                described={**folder.manifest.get("described", {}), name: condition.told},
                reconstructed=[n for n in folder.manifest.get("reconstructed", []) if n != name] + [name] * condition.reconstruction,
            )
            with Store.open(out / STORES[condition.taught], parts.embedder, say=parts.listener.say) as store:
                answer(name, condition, plan.protocol, plan.hide_later, folder, store, parts)
        result = _judge(folder, parts)
        return replace(result, teach=totals, failed=result.failed + failed)


def _save_models(folder: RunFolder, parts: Parts, *roles: Role) -> None:
    """Note which models played these roles, for the report."""
    used = {role.value: parts.identity(role) | {"engine": parts.spec(role).engine, "origin": parts.spec(role).origin} for role in roles}
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
    later_evidence: dict[str, bool] = {}
    texts: set[str] = set()
    occurrences = 0

    def seen(entry: Entry, masked: tuple[Session, ...]) -> None:
        nonlocal occurrences
        occurrences += len(masked)
        texts.update(digest_of([(t.role, t.text) for t in s.turns]) for s in masked)
        if entry.question is not None and entry.gold is not None:
            keys = tuple(s.key for s in masked)
            questions[entry.question.id] = replace(entry.question, text=mask(entry.question.text), haystack=keys)
            gold = replace(entry.gold, answer=mask_value(entry.gold.answer))
            golds[entry.question.id] = KeyedGold(gold, tuple(dict.fromkeys(keys[i] for i in entry.gold.evidence)))
            after = [bool(s.date and entry.question.date and s.date > entry.question.date) for s in masked]
            later[entry.question.id] = any(after)
            later_evidence[entry.question.id] = any(after[i] for i in entry.gold.evidence)

    with Store.open(folder.path / STORES["once"], parts.embedder, write=True, create=True, say=parts.listener.say) as store:
        teaching = Teaching(store, parts, plan.settings, scope=Scope(), seen=seen, committed=Meter(folder, "teach").note)
        totals = teaching.run(plan.sources())
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
        release=release_of(plan.dataset),
        sample=plan.sample.told if plan.sample else "",
        later_questions=sum(later.values()),
        later_evidence=sum(later_evidence.values()),
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


def _teach_jointly(plan: Plan, folder: RunFolder, parts: Parts) -> int:
    """Teach once more, both traces in one completion, into a store of its own. The number of failed sessions."""
    with Store.open(folder.path / STORES["jointly"], parts.embedder, write=True, create=True, say=parts.listener.say) as store:
        committed = Meter(folder, "teach jointly").note
        teaching = Teaching(store, parts, plan.settings, scope=Scope(), committed=committed, jointly=True)
        totals = teaching.run(plan.sources())
        ledger = store.sessions()
    status = Counter(row.status for row in ledger)
    memories, scenes = sum(row.memories for row in ledger), sum(row.with_scene for row in ledger)
    counts = {"read": len(ledger) + totals.failed, **status, "failed": totals.failed, "memories": memories, "with_scene": scenes}
    folder.save(jointly=counts)
    return totals.failed


# ------------------------------------------------------------------------------------------------------- judge


def judge_run(out: Path, parts: Parts) -> Result:
    """Judge every answer that has no verdict by the judge model yet, then report."""
    with RunFolder.written(out, parts.listener.say) as folder:
        return _judge(folder, parts)


def _judge(folder: RunFolder, parts: Parts) -> Result:
    by = parts.identity(Role.JUDGE)["name"]
    model = {"model": parts.identity(Role.JUDGE), "prompts": shaped_by(), "seed": parts.seed}
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

        work_through("judge", condition, Role.JUDGE, (len(pending), len(answers)), jobs, keep, folder, parts)
    folder.save(judge=by)
    _save_models(folder, parts, Role.JUDGE)
    return _report(folder)


def import_run(out: Path, results: Path, name: str, condition: str, say: Callable[[str], None]) -> tuple[Imported, Result]:
    """Take a file of verdicts that were made elsewhere as those of the judge ``name``, then report. Lines that give none are told."""
    with RunFolder.written(out, say) as folder:
        _check_taught(folder)
        found = import_results(folder, results, name, condition)
        for line in found.told:
            say(line)
        return found, _report(folder)


def _check_taught(folder: RunFolder) -> None:
    if not folder.manifest.get("conditions"):
        raise RunError(f"{folder.path}: nothing is answered yet; `dualtrace run` with this --out goes on where it stopped")


# ------------------------------------------------------------------------------------------------------ report


def report_run(out: Path, say: Callable[[str], None]) -> Result:
    """Build the report from what lies in the run folder; no model is needed."""
    return _report(RunFolder(out, say))


def report_of(out: Path, say: Callable[[str], None]) -> Report:
    """The report of a run folder, with nothing written. Raises RunError while it lacks answers or verdicts."""
    return build(_gathered(RunFolder(out, say))[0])


def _gathered(folder: RunFolder) -> tuple[RunData, tuple[KeyedGold, ...], dict[str, dict[str, Any]]]:
    """What the report is made from, the golds with the keys of their sessions, and the ledger."""
    _check_taught(folder)
    manifest = folder.manifest
    if "judge" not in manifest:
        raise RunError(f"{folder.path}: nothing is judged yet; `dualtrace judge {folder.path}` does that")
    conditions: list[str] = manifest["conditions"]
    golds = folder.golds()
    ledger = {row["key"]: row for row in folder.lines("sessions.jsonl").read()}
    answers = {c: folder.answers(c) for c in conditions}
    answered = {(c, a.question_id) for c in conditions for a in answers[c]}
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
        teach=_totals(folder, ledger),
        joint=_joint_totals(folder),
        recall_usage=folder.usage("recall"),
        judge_usage=folder.usage("judge"),
        evidence_kept=_kept(golds, ledger),
        retrieval={c: _retrieval(answers[c], golds) for c in conditions},
        observed=observed(folder, answers, golds, ledger),
    )
    return data, golds, ledger


def _report(folder: RunFolder) -> Result:
    data, golds, ledger = _gathered(folder)
    report = build(data)
    write(report, folder.path / "report", pages(folder, report, data.answers, golds, ledger))
    overall = [row for row in report.rows if row.kind in (OVERALL, *APART)]
    failed = report.teach.failed + sum(row.failed + row.missing for row in overall)
    return Result(report, report.teach, failed, sum(row.unscored for row in overall))


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
        left_out={},
    )


def _joint_totals(folder: RunFolder) -> TeachTotals | None:
    """The same of the teach that writes both traces in one completion, where there was one."""
    counts: dict[str, Any] | None = folder.manifest.get("jointly")
    if counts is None:
        return None
    stage = "teach jointly"
    return TeachTotals(**counts, usage=folder.usage(stage).get("", {}), seconds=folder.seconds().get(stage, 0.0))


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
        release=m.get("release", ""),
        sample=m.get("sample", ""),
        later_evidence=m.get("later_evidence"),
        reconstructed=tuple(m.get("reconstructed", ())),
    )
