"""What is publicly known about benchmark files: which released file a digest is, and which of its answers are wrong.

A table with its sources; it changes what is said about a file, never what is read. Releases are known by the SHA-256 of the (unpacked)
file alone: nothing in a row tells a cleaned one from an original.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .source import Part, content_digest

VERSION = "2026-12-01"
"""Day on which the tables were last changed."""


@dataclass(frozen=True)
class Release:
    """A published file: its benchmark, its name there, which of the benchmark's variants it is, and the release."""

    benchmark: str
    file: str
    variant: str
    release: str


CLEANED = "cleaned, 2025-09"

RELEASES = {
    "08d8dad4be43ee2049a22ff5674eb86725d0ce5ff434cde2627e5e8e7e117894": Release(
        "longmemeval", "longmemeval_s.json", "s", "original, 2024-10"
    ),
    "d6f21ea9d60a0d56f34a05b609c79c88a451d2ae03597821ea3d5a9678c3a442": Release("longmemeval", "longmemeval_s_cleaned.json", "s", CLEANED),
    "821a2034d219ab45846873dd14c14f12cfe7776e73527a483f9dac095d38620c": Release(
        "longmemeval", "longmemeval_oracle.json", "oracle", "the same file in the original and the cleaned release"
    ),
    "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4": Release("locomo", "locomo10.json", "10 conversations", "2024"),
}
"""Digests that several independent users of the files have published. That of longmemeval_m is not among them."""


def release_of(path: Path) -> str:
    """The released file that ``path`` is by its digest, with its release; empty for any other file."""
    known = RELEASES.get(content_digest(Part(path, path.name)))
    return f"{known.file}, {known.release}" if known else ""


@dataclass(frozen=True)
class Defect:
    """A known fault: the question it is about (empty: the whole benchmark), what it is, and where it was reported.

    ``repaired_in`` names the release that no longer has it.
    """

    benchmark: str
    question_id: str
    what: str
    source: str
    repaired_in: str = ""


DEFECTS = (
    Defect("longmemeval", "370a8ff4", "wrong answer: 15 weeks, while the dates in its sessions are 81 days apart (11.6 weeks)",
           "xiaowu0162/LongMemEval#40"),
    Defect("longmemeval", "gpt4_88806d6e", "wrong answer: the sessions give the other order of the two meetings",
           "xiaowu0162/LongMemEval#40"),
    Defect("longmemeval", "eac54add", "wrong evidence: the answer is in a session of another day than the one that is marked",
           "xiaowu0162/LongMemEval#37"),
    Defect("longmemeval", "a3332713", "answer made wrong by a sampled session that adds to the sum", "xiaowu0162/LongMemEval#11",
           CLEANED),
    Defect("longmemeval", "ad7109d1", "answer made wrong by a sampled session that holds a newer value", "xiaowu0162/LongMemEval#12",
           CLEANED),
    Defect("locomo", "", "99 of the 1,540 answers of categories 1 to 4 are wrong, so that about 93.6 % is the most that can be reached",
           "dial481/locomo-audit"),
    Defect("locomo", "", "444 of the 446 questions of category 5 have no answer; the right one is that it is not in memory",
           "snap-research/locomo#41"),
)  # fmt: skip
