"""What a source file holds, before anything is done with it: format, variant, counts, faults, uses. One pass, one record at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from dualtrace_local.records import Entry, Gold, Rejected, Session, digest_of

from . import parsed
from .known import DEFECTS, RELEASES, Defect, Release
from .source import Part, content_digest, is_packed, size_and_digest

SHOWN = 1000
"""Lines about bad records, and notes, that a result holds; all are counted."""

S_SESSIONS = range(30, 81)
M_SESSIONS = range(300, 701)
"""Sessions a question by which a file is called s or m. LongMemEval's README: about 40 (drawn from up to 80) and about 500."""

QUESTIONS = 500
"""Questions of a whole LongMemEval file."""


@dataclass(frozen=True)
class DataCheck:
    """What was found in one file. ``sha256`` is of the file as it lies there, ``content_sha256`` of what is packed in it.

    Records add up: ``records = good + bad``; of a conversation with bad questions each of these is one of ``bad_lines``, not a bad record.
    ``variant`` is empty where nothing tells it, and ``because`` says what does. ``failed`` counts what cannot be read, ``left_out``
    messages that are not taught, by reason.
    """

    file: str
    bytes: int
    sha256: str
    content_sha256: str
    packed: bool
    formats: dict[str, int]
    variant: str
    because: str
    release: str
    records: int
    good: int
    bad: int
    failed: int
    bad_lines: tuple[str, ...]
    notes: int
    note_lines: tuple[str, ...]
    left_out: dict[str, int]
    questions: int
    by_kind: dict[str, int]
    abstention: int
    without_evidence: int
    occurrences: int
    distinct_sessions: int
    distinct_texts: int
    empty: int
    undated: int
    twice_in_a_haystack: int
    later_questions: int
    turns: dict[str, int]
    first_day: str
    last_day: str
    defects: tuple[Defect, ...]
    uses: tuple[str, ...]


@dataclass
class _Count:
    """What is added up while the records pass. Sessions are known by 16 hex characters of a hash, so that no text is kept."""

    formats: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    ids: list[str] = field(default_factory=list)
    bad_lines: list[str] = field(default_factory=list)
    note_lines: list[str] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    failed: int = 0
    notes: int = 0
    abstention: int = 0
    without_evidence: int = 0
    occurrences: int = 0
    empty: int = 0
    undated: int = 0
    twice: int = 0
    later: int = 0
    only_evidence: bool = True
    first: datetime | None = None
    last: datetime | None = None

    def rejected(self, line: str) -> None:
        self.failed += 1
        if len(self.bad_lines) < SHOWN:
            self.bad_lines.append(line)

    def noted(self, lines: tuple[str, ...]) -> None:
        self.notes += len(lines)
        self.note_lines += lines[: SHOWN - len(self.note_lines)]

    def sessions(self, sessions: tuple[Session, ...]) -> None:
        """Sessions of an entry, and not again those of the next one when it shares them."""
        here: set[str] = set()
        for session in sessions:
            text = digest_of([(t.role, t.text) for t in session.turns], length=16)
            self.occurrences += 1
            self.twice += text in here and not session.empty
            here.add(text)
            self.keys.add(session.key[:16])
            self.turns.update(t.role for t in session.turns)
            self.empty += session.empty
            if session.date is None:
                self.undated += 1
            else:
                self.first = min(self.first or session.date, session.date)
                self.last = max(self.last or session.date, session.date)
        self.texts |= here

    def question(self, entry: Entry, gold: Gold) -> None:
        self.ids.append(gold.question_id)
        self.kinds[gold.kind] += 1
        self.abstention += gold.abstention
        self.without_evidence += not gold.evidence
        self.sizes[len(entry.sessions)] += 1
        self.only_evidence &= set(gold.evidence) == set(range(len(entry.sessions)))
        asked = entry.question.date if entry.question else None
        self.later += any(s.date is not None and asked is not None and s.date > asked for s in entry.sessions)


def check(file: Path | Part, advance: Callable[[], None] = lambda: None) -> DataCheck:
    """Read ``file`` through and say what it holds; ``advance`` is called after each record.

    Raises DataError when the file as a whole cannot be read or is output of this program.
    """
    part = Part(file, file.name) if isinstance(file, Path) else file
    count = _Count()
    before: tuple[Session, ...] | None = None
    for record in parsed(part):
        entries = [found for found in record.found if isinstance(found, Entry)]
        for found in record.found:
            if isinstance(found, Rejected):
                count.rejected(str(found))
        count.formats[record.format] += bool(entries)
        count.good += bool(entries)
        count.bad += not entries
        for entry in entries:
            count.noted(entry.notes)
            count.left_out.update(entry.left_out)
            if entry.sessions is not before:
                before = entry.sessions
                count.sessions(entry.sessions)
            if entry.gold is not None:
                count.question(entry, entry.gold)
        advance()
    packed = is_packed(part)
    size, sha256 = size_and_digest(part)
    inside = content_digest(part) if packed else sha256
    known = RELEASES.get(inside)
    variant, because = _variant(count, known)
    return DataCheck(
        file=part.name,
        bytes=size,
        sha256=sha256,
        content_sha256=inside,
        packed=packed,
        formats={name: n for name, n in count.formats.items() if n},
        variant=variant,
        because=because,
        release=known.release if known else "",
        records=count.good + count.bad,
        good=count.good,
        bad=count.bad,
        failed=count.failed,
        bad_lines=tuple(count.bad_lines),
        notes=count.notes,
        note_lines=tuple(count.note_lines),
        left_out=dict(sorted(count.left_out.items())),
        questions=len(count.ids),
        by_kind=dict(sorted(count.kinds.items())),
        abstention=count.abstention,
        without_evidence=count.without_evidence,
        occurrences=count.occurrences,
        distinct_sessions=len(count.keys),
        distinct_texts=len(count.texts),
        empty=count.empty,
        undated=count.undated,
        twice_in_a_haystack=count.twice,
        later_questions=count.later,
        turns=dict(count.turns.most_common()),
        first_day=f"{count.first:%Y-%m-%d}" if count.first else "",
        last_day=f"{count.last:%Y-%m-%d}" if count.last else "",
        defects=_defects(count, variant, known.release if known else ""),
        uses=tuple(_uses(count)),
    )


def _variant(count: _Count, known: Release | None) -> tuple[str, str]:
    """The variant and what tells it. By digest a released file is known; else LongMemEval's rows tell s, m and oracle by their sessions."""
    if known:
        return known.variant, f"SHA-256 of the released {known.file}"
    if not count.formats["longmemeval"] or not count.sizes:
        return "", ""
    some = "" if len(count.ids) == QUESTIONS else f"{len(count.ids)} of {QUESTIONS} questions; "
    few, most = min(count.sizes), max(count.sizes)
    spread = f"{few} to {most} sessions a question" if few < most else f"{few} sessions a question"
    if count.only_evidence:
        return "oracle", f"{some}every session is marked as evidence"
    for name, sizes in (("s", S_SESSIONS), ("m", M_SESSIONS)):
        if few in sizes and most in sizes:
            return name, f"{some}{spread}"
    return "", f"{some}{spread}: neither s ({S_SESSIONS[0]} to {S_SESSIONS[-1]}) nor m ({M_SESSIONS[0]} to {M_SESSIONS[-1]})"


def _defects(count: _Count, variant: str, release: str) -> tuple[Defect, ...]:
    """Known faults of the file's questions, and of its benchmark.

    Those that came with sampled sessions and were repaired are not in a release that is known to be the repaired one, nor where there
    are no sampled sessions (oracle).
    """
    ids = set(count.ids)
    return tuple(
        d
        for d in DEFECTS
        if count.formats[d.benchmark]
        and (d.question_id in ids or not d.question_id)
        and not (d.repaired_in and (variant == "oracle" or release == d.repaired_in))
    )


def _uses(count: _Count) -> list[str]:
    """Commands that the file is good for, with what limits them."""
    teach = ["teach"] if count.occurrences > count.empty else []
    if not count.ids:
        return teach
    evidence = count.only_evidence and count.formats["longmemeval"]
    return [*teach, "run (evidence sessions only: it measures reading, not finding)" if evidence else "run"]
