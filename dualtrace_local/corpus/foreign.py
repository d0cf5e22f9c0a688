"""What is no source of chats: files of other kinds, known by their first bytes, and what this program writes itself."""

from __future__ import annotations

from .text import Record

GZIP = b"\x1f\x8b"
ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
"""A zip archive, and one without files."""

_UNPACK = "unpack it and name the JSON file that was in it"
_EXPORT = "export what it holds as JSON or JSONL"

_MAGIC = (
    (0, GZIP, "packed twice with gzip", "unpack it once"),
    (0, ZIPS[0], "a zip archive inside of another file", _UNPACK),
    (0, ZIPS[1], "an empty zip archive", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it with `zstd -d`; gzip is read as it is"),
    (0, b"\xfd7zXZ\x00", "packed with xz", "unpack it with `unxz`; gzip is read as it is"),
    (0, b"BZh", "packed with bzip2", "unpack it with `bunzip2`; gzip is read as it is"),
    (0, b"\x04\x22\x4d\x18", "packed with lz4", "unpack it with `unlz4`; gzip is read as it is"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (0, b"Rar!", "a rar archive", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"PAR1", "a Parquet table", _EXPORT),
    (0, b"ARROW1", "an Arrow table", _EXPORT),
    (0, b"FEA1", "a Feather table", _EXPORT),
    (0, b"Obj\x01", "an Avro file", _EXPORT),
    (0, b"ORC", "an ORC table", _EXPORT),
    (0, b"\x89HDF", "an HDF5 file", _EXPORT),
    (0, b"SQLite format 3\x00", "an SQLite database", _EXPORT),
    (0, b"\xd0\xcf\x11\xe0", "an old Office file (xls, doc)", _EXPORT),
    (0, b"%PDF-", "a PDF", "chats are read from JSON or JSONL alone"),
    (0, b"GGUF", "the weights of a model", "models are named in models.yaml"),
    (0, b"\x89PNG", "a picture", "chats are read from JSON or JSONL alone"),
    (0, b"\xff\xd8\xff", "a picture", "chats are read from JSON or JSONL alone"),
    (0, b"GIF8", "a picture", "chats are read from JSON or JSONL alone"),
    (0, b"RIFF", "sound, video or a picture", "chats are read from JSON or JSONL alone"),
    (0, b"\x7fELF", "a program", "chats are read from JSON or JSONL alone"),
)
"""Offset, first bytes, what it is, what to do."""

_OPENINGS = (
    ("<!doctype html", "a web page", "save the data itself, not the page that shows it"),
    ("<html", "a web page", "save the data itself, not the page that shows it"),
    ("<?xml", "XML", _EXPORT),
    ("version https://git-lfs", "a pointer of Git LFS and not the file", "fetch the file with `git lfs pull`"),
    ("[fact:", "an exported memory", "what this program wrote is never taught"),
    ("[scene:", "an exported memory", "what this program wrote is never taught"),
)

_OWN = (
    ("answers of a run", ("question_id", "condition", "state", "abstained")),
    ("verdicts of a run", ("question_id", "condition", "correct", "by")),
    ("verdicts of LongMemEval's scorer", ("question_id", "autoeval_label")),
    ("answers of a run", ("question_id", "hypothesis")),
    ("the right answers of a run", ("question_id", "kind", "abstention", "evidence_turns")),
    ("questions of a run", ("id", "text", "date", "haystack")),
    ("the ledger of a store", ("key", "external_id", "tier", "status")),
    ("failures of a run", ("stage", "key", "reason", "raw")),
    ("the token counts of a run", ("stage", "condition", "usage")),
    ("the manifest of a run", ("version", "fingerprints", "starts")),
    ("a report", ("header", "conditions", "rows", "pairs")),
    ("the result of a run", ("run", "report", "rows", "pairs")),
    ("the totals of a teach", ("read", "taught", "dropped", "unchanged")),
    ("an answer", ("question", "answer", "state", "confidence", "sources")),
    ("an archive of memories", ("archive", "made_by")),
)
"""Files and documents of this program by fields that they alone have together."""

_CHAT = ("haystack_sessions", "turns", "messages", "session", "conversations", "conversation", "mapping", "chat_messages")
_TABLES = ("sessions", "memories", "versions", "rounds", "haystacks", "forgotten", "vectors")


def foreign(head: bytes) -> str:
    """What the file is and what to do, when its first bytes show that it holds no chats; else empty. 512 bytes are enough."""
    for offset, magic, what, remedy in _MAGIC:
        if head.startswith(magic, offset):
            return f"is {what}; {remedy}"
    start = head.lstrip()[:32].decode("ascii", "replace").lower()
    return next((f"is {what}; {remedy}" for opening, what, remedy in _OPENINGS if start.startswith(opening)), "")


def own(record: Record) -> str:
    """What of this program's own output a record is; empty for anything that may be a chat or a question.

    Answers, verdicts and memories must not come back as things that the user said.
    """
    if isinstance(record.get("session"), str) and {"status", "memories"} <= record.keys():
        return "what was remembered"
    if {"session_key", "anchor", "components", "scene"} <= record.keys():
        return "a memory"  # with the turns it rests on, which would pass for a chat
    if any(name in record for name in _CHAT):
        return ""
    if record.get("table") in _TABLES:
        return "the dump of a store"
    if set(record) == {"memories"}:
        return "a list of memories"
    return next((what for what, fields in _OWN if all(name in record for name in fields)), "")
