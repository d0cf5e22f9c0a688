"""Conversations as people get them back from ChatGPT and Claude: one record, one conversation, as its owner last saw it.

Both keep every draft of a talk as a tree. What is read is the path from the newest message up to the first one; other branches, and
messages that nobody said to anybody (hidden, system, tools, thinking, without text), are left out and counted by reason.

A talk that goes on after a pause of more than ``PAUSE`` is another session, dated by its first message, since "yesterday" means another day
then; so a conversation that has grown since the last export adds only what is new.

Times carry no zone of the speaker; they are read as UTC wall time. There is no official schema; both readers take what exports of
2023 to 2026 hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dualtrace_local.records import Entry, Scope, Session, Turn, digest_of

from .text import ROLES, BadRecordError, Place, Record, epoch_field, id_text, parse_date, text_field

PAUSE = timedelta(hours=8)
"""Longest silence inside one session: less than a night."""

HIDDEN = "hidden messages"
SYSTEM = "system messages"
TOOL = "tool messages"
THINKING = "thinking"
BLANK = "messages without text"
BRANCH = "messages on other branches"

_TITLE = 60
_ID = 8
_PICTURES = {"image_asset_pointer": "image", "video_container_asset_pointer": "video"}
_THOUGHTS = ("thoughts", "reasoning_recap")


@dataclass
class _Talk:
    """What is read of a conversation: (role, text, time) in order, and one reason for each thing left out."""

    said: list[tuple[str, str, datetime | None]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def is_chatgpt(record: Record) -> bool:
    """Whether a record is meant as a conversation of a ChatGPT export."""
    return "mapping" in record and not any(name in record for name in ("turns", "messages", "conversations"))


def is_claude(record: Record) -> bool:
    """Whether a record is meant as a conversation of a Claude export."""
    return "chat_messages" in record


def chatgpt_entry(record: Record, place: Place, scope: Scope) -> Entry:
    """A conversation of ``conversations.json``. Raises BadRecordError: a message's parent is missing, or parents go in a circle."""
    nodes = _typed(record["mapping"], "mapping", dict)
    talk = _Talk()
    path = list(_path(_leaf(record, nodes), nodes, lambda node: node.get("parent"), "mapping"))
    on_path = set(path)
    talk.left_out += [BRANCH for name, node in nodes.items() if name not in on_path and isinstance(node, dict) and node.get("message")]
    for name in reversed(path):
        message = nodes[name].get("message")
        if message is not None:
            _chatgpt_message(_typed(message, f"mapping.{id_text(name, 'node')}.message", dict), talk)
    times = [_time(record.get(name), name) for name in ("create_time", "update_time")]
    return _entry(record, ("conversation_id", "id"), record.get("title"), times, talk, place, scope)


def _leaf(record: Record, nodes: dict[str, Any]) -> str:
    """The message that was seen last: the one that is named, else the newest without an answer; empty when there is none."""
    if record.get("current_node") is not None:
        return id_text(record["current_node"], "current_node")
    parents = {node.get("parent") for node in nodes.values() if isinstance(node, dict)}
    leaves = [name for name in nodes if name not in parents]
    if nodes and not leaves:
        raise BadRecordError("mapping has no last message: its parents go in a circle")

    def time(name: str) -> datetime:
        message = nodes[name].get("message") if isinstance(nodes[name], dict) else None
        return (_time(message.get("create_time"), "create_time") if isinstance(message, dict) else None) or datetime(1, 1, 1)

    return max(reversed(leaves), key=time, default="")


def _path(leaf: str, nodes: dict[str, Any], parent: Callable[[dict[str, Any]], Any], name: str) -> Iterator[str]:
    """The ids from ``leaf`` to the first message."""
    met: set[str] = set()
    at: Any = leaf or None
    while at is not None:
        if not isinstance(at, str) or at not in nodes:
            raise BadRecordError.about(name, at, "does not hold the message")
        if at in met:
            raise BadRecordError.about(name, at, "has parents that go in a circle at")
        met.add(at)
        yield at
        at = parent(_typed(nodes[at], f"{name}.{id_text(at, 'node')}", dict))


def _chatgpt_message(message: dict[str, Any], talk: _Talk) -> None:
    author, content = message.get("author") or {}, message.get("content") or {}
    role = author.get("role") if isinstance(author, dict) else None
    role = text_field(role, "author.role") if role is not None else ""
    kind = content.get("content_type") if isinstance(content, dict) else "text"
    metadata = message.get("metadata")
    text = _chatgpt_text(content)
    reason = ""
    if isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation"):
        reason = HIDDEN
    elif role == "system":
        reason = SYSTEM
    elif role == "tool" or message.get("recipient") not in (None, "all"):
        reason = TOOL
    elif kind in _THOUGHTS:
        reason = THINKING
    elif not role or not text:
        reason = BLANK
    if reason:
        talk.left_out.append(reason)
    else:
        talk.said.append((ROLES.get(role.lower(), role), text, _time(message.get("create_time"), "create_time")))


def _chatgpt_text(content: object) -> str:
    """The words of a message, behind a mark for each picture; empty when there are none."""
    if isinstance(content, str):
        return text_field(content, "content").strip()
    if not isinstance(content, dict):
        raise BadRecordError.kind("content", content, "an object")
    parts = content.get("parts")
    if not isinstance(parts, list):
        text = content.get("text")
        return text_field(text, "content.text").strip() if text is not None else ""
    texts, marks = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(text_field(part, "content.parts"))
        elif isinstance(part, dict):
            kind = part.get("content_type")
            if isinstance(part.get("text"), str):
                texts.append(text_field(part["text"], "content.parts"))
            elif isinstance(kind, str) and kind in _PICTURES:
                marks.append(f"[{_PICTURES[kind]}]")
    return _marked(marks, texts)


def _marked(marks: list[str], texts: list[str]) -> str:
    text = "\n".join(t for t in texts if t.strip()).strip()
    return " ".join([*marks, text]) if text else ""


def claude_entry(record: Record, place: Place, scope: Scope) -> Entry:
    """A conversation of a Claude export. Raises BadRecordError as ``chatgpt_entry``."""
    messages = [_typed(m, f"chat_messages[{n}]", dict) for n, m in enumerate(_typed(record["chat_messages"], "chat_messages", list))]
    talk = _Talk()
    path = _claude_path(record, messages)
    talk.left_out += [BRANCH] * (len(messages) - len(path))
    for message in path:
        _claude_message(message, talk)
    times = [_time(record.get(name), name) for name in ("created_at", "updated_at")]
    return _entry(record, ("uuid", "id"), record.get("name"), times, talk, place, scope)


def _claude_path(record: Record, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages that were seen last: file order, or the branch of the newest where messages name their parents."""
    nodes = {m["uuid"]: m for m in messages if isinstance(m.get("uuid"), str)}
    if not messages or len(nodes) < len(messages) or not all(isinstance(m.get("parent_message_uuid"), str) for m in messages):
        return messages
    leaf = record.get("current_leaf_message_uuid")
    leaf = leaf if isinstance(leaf, str) and leaf in nodes else messages[-1]["uuid"]

    def parent(node: dict[str, Any]) -> str | None:
        # The first message has a parent that is no message.
        return node["parent_message_uuid"] if node["parent_message_uuid"] in nodes else None

    return [nodes[name] for name in _path(leaf, nodes, parent, "chat_messages")][::-1]


def _claude_message(message: dict[str, Any], talk: _Talk) -> None:
    role = text_field(message.get("sender"), "sender")
    blocks = message.get("content")
    blocks = [b for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []
    texts = [text_field(b["text"], "content.text") for b in blocks if b.get("type") == "text" and isinstance(b.get("text"), str)]
    # The field text repeats the blocks, with remarks of the program between them.
    if not any(t.strip() for t in texts):
        texts = [text_field(message["text"], "text")] if message.get("text") is not None else []
    others = [THINKING if b.get("type") == "thinking" else TOOL for b in blocks if b.get("type") in ("thinking", "tool_use", "tool_result")]
    talk.left_out += others
    marks = []
    for given in _objects(message.get("attachments")):
        name, inside = given.get("file_name"), given.get("extracted_content")
        mark = f"[attachment {id_text(name, 'file_name')}]" if isinstance(name, str) and name else "[attachment]"
        if isinstance(inside, str) and inside.strip():
            texts.append(f"{mark} {text_field(inside, 'extracted_content').strip()}")
        else:
            marks.append(mark)
    marks += [
        f"[file {id_text(f['file_name'], 'file_name')}]" for f in _objects(message.get("files")) if isinstance(f.get("file_name"), str)
    ]
    text = _marked(marks, texts)
    if role == "system":
        talk.left_out.append(SYSTEM)
    elif text:
        talk.said.append((ROLES.get(role.lower(), role), text, _time(message.get("created_at"), "created_at")))
    elif not others:
        talk.left_out.append(BLANK)


def _objects(value: object) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _typed(value: object, name: str, kind: type) -> Any:
    if not isinstance(value, kind):
        raise BadRecordError.kind(name, value, "an object" if kind is dict else "a list")
    return value


def _time(value: object, name: str) -> datetime | None:
    """A time, or None where there is none; 0 is none. Raises BadRecordError for one that cannot be read."""
    if value is None or isinstance(value, bool) or value in ("", 0):
        return None
    if isinstance(value, int | float):
        return epoch_field(value, name)
    date = parse_date(value) if isinstance(value, str) else None
    if date is None:
        raise BadRecordError.about(name, value, "not readable")
    return date


def _entry(
    record: Record, ids: tuple[str, ...], title: object, times: list[datetime | None], talk: _Talk, place: Place, scope: Scope
) -> Entry:
    """The conversation as sessions, one for each stretch without a long pause."""
    stretches: list[list[tuple[str, str, datetime | None]]] = [[]]
    last: datetime | None = None
    for turn in talk.said:
        if last and turn[2] and turn[2] - last > PAUSE:
            stretches.append([])
        stretches[-1].append(turn)
        last = turn[2] or last
    earliest = min((at for _, _, at in talk.said if at), default=None)
    begun = next((time for time in times if time), earliest)
    name = _name(record, ids, title, talk)
    return Entry(
        place.source,
        place.record,
        tuple(
            Session(
                turns=tuple(Turn(role, text) for role, text, _ in stretch),
                date=stretch[0][2] if n else begun,
                scope=scope,
                external_id=f"{name}, part {n + 1}" if n else name,
                source=place.source,
                record=place.record,
            )
            for n, stretch in enumerate(stretches)
        ),
        notes=tuple(place.notes),
        left_out=tuple(talk.left_out),
    )


def _name(record: Record, ids: tuple[str, ...], title: object, talk: _Talk) -> str:
    """What people know the conversation by: its title, else how it begins, with the beginning of its id; else a hash."""
    begins = next((text for role, text, _ in talk.said if role == "user"), "")
    given = id_text(title, "title") if isinstance(title, str) else ""
    given = given or id_text(" ".join(begins.split())[:_TITLE], "title")
    number = next((id_text(record[name], name)[:_ID] for name in ids if record.get(name) is not None), "")
    return f"{given} ({number})" if given and number else given or number or "text-" + digest_of(talk.said, length=12)
