"""The rule-made model named ``scripted``: works a reply out of the prompt's text by plain rules.

It is no language model and its numbers say nothing about one. It lets the whole command line run in seconds anywhere, and gives every
test of logic a model whose replies are the same on every machine: first-person sentences become statements, an anchor is made of the
longest words, a scene is a fixed picture, an answer quotes the line that shares the most words with the question.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dualtrace_local.grounding import STOP_WORDS, names, numbers, stems
from dualtrace_local.records import Request

_DATA = re.compile(r"<data ([0-9a-f]{8})>\n(.*?)\n</data \1>", re.DOTALL)
_FIRST_PERSON = re.compile(r"\b(?:I|we)\b|\bI['’](?:m|ve|d|ll)\b|\b[Mm]y\b|\b[Oo]ur\b")
_ASKING = re.compile(r"\b(?:can|could|would) you\b|\bhow (?:do|can|should) I\b|\bhelp me\b|\btell me\b|\?$", re.IGNORECASE)
_ENOUGH = 0.5
_LONGEST = 160


def reply(request: Request) -> str:
    """The JSON text of a reply that fits ``request.output``. Raises KeyError for a kind of request that has no rule."""
    data = [match.group(2) for match in _DATA.finditer(request.user)]
    rule = {
        "facts": _facts,
        "facts+scene": _facts,
        "details": _details,
        "details+scene": _details,
        "gate": _gate,
        "anchor": _anchor,
        "scene": _scene,
        "recall-scene": _scene,
        "read": _read,
        "judge": _judge,
    }[request.kind]
    return json.dumps(rule(request, data[-1] if request.kind == "scene" else data[0]), ensure_ascii=False, separators=(",", ":"))


def _statements(text: str, most: int) -> list[str]:
    spoken = re.split(r"(?m)^(?=\w+: )", text)
    mine = [line.removeprefix("user: ") for line in spoken if line.startswith("user: ")]
    pieces = [piece.strip() for line in mine for piece in re.split(r"(?<=[.!?])\s+|\n+", line)]
    return _rewritten([p for p in pieces if _FIRST_PERSON.search(p) and not _ASKING.search(p)], most)


def _rewritten(pieces: list[str], most: int) -> list[str]:
    made = [_third_person(_end_of(p)) for p in pieces]
    return [m for m in dict.fromkeys(made) if re.fullmatch(r'The user([^"\\.!?\n]|\.[0-9a-z]){8,170}\.', m)][:most]


def _end_of(piece: str) -> str:
    """Of text without sentence ends, what comes from its last first-person word on."""
    return piece if len(piece) <= _LONGEST else piece[max(m.start() for m in _FIRST_PERSON.finditer(piece)) :]


_PERSONS = (
    (r"\bI['’]m\b|\bI am\b", "the user is"),
    (r"\bI['’]ve\b|\bI have\b", "the user has"),
    (r"\bI['’]ll\b", "the user will"),
    (r"\bI['’]d\b", "the user would"),
    (r"\b[Mm]y\b|\b[Oo]ur\b", "the user's"),
    (r"\bI\b|\b[Ww]e\b", "the user"),
    (r"\bme\b|\bus\b", "the user"),
)


def _third_person(sentence: str) -> str:
    text = re.sub(r"[\"\\]", "'", sentence).rstrip(".!? ")
    text = re.sub(r"^(?:by the way|also|and|so|well|oh),?\s+", "", text, flags=re.IGNORECASE)
    for pattern, into in _PERSONS:
        text = re.sub(pattern, into, text)
    text = re.sub(r"\.(?![0-9a-z])", ",", text)[:_LONGEST]
    return (text[0].upper() + text[1:] if text.lower().startswith("the user") else f"The user said that {text}") + "."


def _facts(request: Request, data: str) -> dict[str, Any]:
    fields = request.output.model_fields
    if "groups" in fields:
        facts = _statements(data, 6)
        group = {"topic": _slug(facts), "kind": "discrete", "category": "other", "facts": facts}
        if request.kind == "facts+scene":
            group["picture"] = _picture(facts)
        return {"groups": [group] if facts else []}
    listed = fields["notes" if "notes" in fields else "facts"]
    limit = next((m.max_length for m in listed.metadata if hasattr(m, "max_length")), 5)
    return _listed(request, _statements(data, limit))


def _details(request: Request, data: str) -> dict[str, Any]:
    lines = [line.removeprefix("- ") for line in data.split("\n")]
    return _listed(request, _rewritten(lines, len(lines)))


def _listed(request: Request, facts: list[str]) -> dict[str, Any]:
    """The statements, each with its moment where both are asked for."""
    return {"notes": [{"fact": f, "moment": _moment([f])} for f in facts]} if "notes" in request.output.model_fields else {"facts": facts}


def _gate(_request: Request, data: str) -> dict[str, Any]:
    facts = _statements(data, 6)
    specific = 2 if any(numbers(f) or names(f) for f in facts) else 1
    first = re.sub(r'["\\\n]', " ", facts[0])[:300] if facts else ""
    return {"disclosed": first, "relevance": 2, "specificity": specific, "explicitness": 2} if facts else _NOTHING


_NOTHING = {"disclosed": "", "relevance": 0, "specificity": 0, "explicitness": 0}


def _slug(lines: list[str]) -> str:
    words = re.findall(r"\b[a-z]{3,14}\b", " ".join(lines).lower())
    content = [w for w in dict.fromkeys(words) if w not in STOP_WORDS and w != "user"]
    longest = sorted(content, key=lambda w: (-len(w), w))[:2]
    return "-".join([*longest, "about", "life"][:2])


def _anchor(_request: Request, data: str) -> dict[str, Any]:
    return {"topic": _slug(data.split("\n"))}


def _scene(request: Request, data: str) -> dict[str, Any]:
    lines = data.split("\n")
    return {"picture": _picture(lines)} if "picture" in request.output.model_fields else {"moment": _moment(lines)}


def _moment(lines: list[str]) -> str:
    return f"The user sits at a wooden table and holds up a card about {_things(lines)}."


def _picture(lines: list[str]) -> str:
    detail = " ".join(line.removeprefix("- ") for line in lines).replace('"', "'")[:600].rstrip(".")
    return f"Picture: the user sits at a wooden table with a card about {_things(lines)}. {detail}."


def _things(lines: list[str]) -> str:
    return _slug(lines).replace("-", " and ")


def _read(request: Request, data: str) -> dict[str, Any]:
    items = [json.loads(line) for line in data.split("\n")]
    found = re.search(r"(?m)^Question from the same person: (.*)$", request.user)
    asked = stems(found.group(1) if found else "")
    side = "assistant" if found and re.search(r"\byou\b", found.group(1), re.IGNORECASE) else "user"
    told = {i["id"]: next(i[k] for k in ("fact", side, "assistant", "user") if k in i) for i in items}
    best = max(items, key=lambda i: (len(asked & stems(told[i["id"]])), i["said"]))
    sentences = re.split(r"(?<=\.)\s+|\n+", told[best["id"]])
    answer = max(sentences, key=lambda s: len(asked & stems(s))).lstrip(" ,.;:!?()-") or "nothing"
    answer = re.sub(r'["\\\n]', "'", answer.replace("The user's", "your").replace("The user", "you"))[:200].rstrip(".") + "."
    return {"notes": "The line that shares the most words with the question.", "used": [best["id"]], "answer": answer}


def _judge(_request: Request, data: str) -> dict[str, Any]:
    material = dict(line.split(": ", 1) for line in data.split("\n"))
    gold, given = stems(material["Right answer"]), stems(material["Given answer"])
    return {"verdict": "correct" if gold and len(gold & given) / len(gold) >= _ENOUGH else "wrong"}
