"""Chats as Markdown or plain text: one file, one chat or several.

::

    # 2024-03-09 18:20 Buying a concertina

    ## User
    I bought a used concertina.

    ## Assistant
    Lovely!

A speaker is a line of its own or begins one: ``## User``, ``**User:** text`` or ``User: text``; which of the three the first one is
decides for the whole chat, so that the other two are plain words. Speakers are called user, you, me, human, assistant, ai, bot, chatgpt,
gpt, claude, gemini, copilot or system, in any case of letters, with or without "said". A heading of the first level that begins with a
date begins a chat; without one the file is one chat, whose date and title may stand in YAML front matter, else it is undated.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import yaml

from .text import ROLES, BadRecordError, Record, date_field, epoch_field

_ROLES = ROLES | dict.fromkeys(("you", "me"), "user") | dict.fromkeys(("ai", "bot", "claude", "gemini", "copilot"), "assistant")
_WHO = rb"(?P<who>" + "|".join(sorted(_ROLES, key=len, reverse=True)).encode() + rb")(?:[ ]said)?"
_STYLES = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rb"#{1,6}[ \t]+(?:\*\*)?" + _WHO + rb":?(?:\*\*)?:?(?P<text>)\s*",
        rb"\*\*" + _WHO + rb"(?::\*\*|\*\*:)(?P<text>.*)",
        _WHO + rb":(?P<text>.*)",
    )
)
_TITLE = re.compile(rb"#[ \t]+\S.*", re.DOTALL)
_DATED = re.compile(
    rb"#[ \t]+(?P<date>[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}(?:[T \t]+[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?)(?:[ \t]+(?P<title>.*))?\s*",
    re.DOTALL,
)
_MATTER = b"---"
_MATTER_LINES = 100
_DATES = ("date", "created", "created_at", "create_time")
_NUMBER = re.compile(r"[0-9]{9,13}(?:\.[0-9]+)?")


def style(head: bytes) -> re.Pattern[bytes] | None:
    """What a speaker's line looks like in a file that begins with ``head``; None when that is no beginning of a chat.

    Before the first speaker nothing may stand but front matter and one title.
    """
    lines = iter(line for line in head.splitlines() if line.strip())
    line = next(lines, b"").strip()
    if line == _MATTER:
        next((line for line in lines if line.strip() == _MATTER), None)
        line = next(lines, b"")
    if _speaker_style(line) is None and _TITLE.fullmatch(line):
        line = next(lines, b"")
    return _speaker_style(line)


def _speaker_style(line: bytes) -> re.Pattern[bytes] | None:
    return next((pattern for pattern in _STYLES if pattern.fullmatch(line)), None)


def cut(file: io.BufferedReader[Any], most: int) -> Iterator[bytes | None]:
    """The chats of a file, each as its bytes; None for one that is longer than ``most`` bytes."""
    chat: list[bytes] = []
    size, spoken = 0, False
    while line := file.readline(most + 1):
        if spoken and _DATED.fullmatch(line):
            yield b"".join(chat) if size <= most else None
            chat, size, spoken = [], 0, False
        spoken = spoken or _speaker_style(line) is not None
        size += len(line)
        if size <= most:
            chat.append(line)
        else:
            chat.clear()
    yield b"".join(chat) if size <= most else None


def chat_record(data: bytes) -> Record:
    """One chat as a plain session. Raises BadRecordError: not UTF-8, front matter that is no YAML, a date that is none."""
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        raise BadRecordError(f"not UTF-8 at byte {problem.start + 1} of the chat; save it as UTF-8") from problem
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    matter, lines = _front_matter(lines)
    speaker = style(b"\n".join(line for line in lines if line.strip()))
    if speaker is None:
        msg = "no line of it begins with a speaker; see the README for the form"
        raise BadRecordError(msg)
    turns: list[tuple[str, list[bytes]]] = []
    title, date = matter.get("title"), next((matter[name] for name in _DATES if matter.get(name)), None)
    for line in lines:
        if found := speaker.fullmatch(line):
            turns.append((_ROLES[found["who"].decode().lower()], [found["text"].lstrip()]))
        elif turns:
            turns[-1][1].append(line)
        elif dated := _DATED.fullmatch(line):
            date, title = dated["date"].decode(), (dated["title"] or b"").decode() or title
        elif _TITLE.fullmatch(line):
            title = line.lstrip(b"#").decode().strip()
    return {
        "id": title or None,
        "date": _date(date) if date else None,
        "turns": [{"role": role, "content": b"\n".join(said).decode().strip()} for role, said in turns],
    }


def _front_matter(lines: list[bytes]) -> tuple[dict[str, str], list[bytes]]:
    start = next((n for n, line in enumerate(lines) if line.strip()), 0)
    end = next((n for n in range(start + 1, min(len(lines), start + _MATTER_LINES)) if lines[n].strip() == _MATTER), 0)
    if lines[start].strip() != _MATTER or not end:
        return {}, lines
    try:
        # This loader makes text of everything: a date stays what was written.
        matter = yaml.load(b"\n".join(lines[start + 1 : end]), Loader=yaml.BaseLoader)  # noqa: S506 - makes no objects
    except (yaml.YAMLError, RecursionError):
        raise BadRecordError("the front matter is not YAML") from None
    return {k: v for k, v in matter.items() if isinstance(v, str)} if isinstance(matter, dict) else {}, lines[end + 1 :]


def _date(text: str) -> str:
    date = epoch_field(float(text), "date") if _NUMBER.fullmatch(text.strip()) else date_field(text, "date")
    return date.isoformat(" ", "seconds")
