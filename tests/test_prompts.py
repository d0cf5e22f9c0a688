"""Prompt files: single-pass filling, digests, what a model may see of a text, and fences that data cannot forge."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtrace_local.domains import prompts
from dualtrace_local.grounding import NUMBER_WORDS

SECRET = b"0123456789abcdef"

COUNTS = frozenset("one two three four five six seven eight nine ten half once first second third".split())
"""Words that say how long a reply may be."""

TASK_WORDS = frozenset("User Picture Date Question Today Text You Verdict Which Give Keep".split())


def plain_texts():
    return [(name, prompts.template(name)) for name in prompts.names()]


def test_filling_is_a_single_pass():
    """A value that looks like a placeholder is text and stays as it is."""
    filled = prompts.fill("session", date="{{session}}", session="{{date}} {{nothing}}")
    assert filled == prompts.template("session").replace("{{date}}", "D").replace("{{session}}", "{{date}} {{nothing}}").replace(
        "chat: D", "chat: {{session}}"
    )


def test_a_missing_or_unknown_placeholder_is_an_error():
    with pytest.raises(KeyError, match="session"):
        prompts.fill("session", date="x")
    with pytest.raises(ValueError, match=r"session.*gold"):
        prompts.fill("session", date="x", session="y", gold="z")
    with pytest.raises(FileNotFoundError):
        prompts.template("no_such_prompt")


def test_digests_tell_every_prompt_apart_and_do_not_change_by_themselves():
    digests = {name: prompts.digest(name) for name in prompts.names()}
    assert len(set(digests.values())) == len(digests) > 10
    assert all(re.fullmatch(r"[0-9a-f]{16}", d) for d in digests.values())
    assert digests == {name: prompts.digest(name) for name in prompts.names()}


@pytest.mark.parametrize(("name", "text"), plain_texts())
def test_no_template_holds_something_that_could_become_a_memory(name, text):
    """No date, clock time, number, name or place: a small model copies examples into its facts."""
    shown = re.sub(r"\{\{[a-z_]+\}\}", "", text)
    without_scale = re.sub(r"(?m)^(?:relevance|specificity|explicitness): 0 .*, 1 .*, 2 .*$", "", shown)
    assert not re.search(r"\d", without_scale), name
    months = "january february march april june july august september october november december"
    weekdays = "monday tuesday wednesday thursday friday saturday sunday"
    calendar = rf"(?i)\b(?:{'|'.join((months + ' ' + weekdays).split())})s?\b"
    assert not re.search(calendar, shown), name
    assert not {w for w in re.findall(r"[a-z]+", shown.lower()) if w in NUMBER_WORDS} - COUNTS, name
    starts = re.sub(r'(?:^|[.:!?"]\s*|\n)"?[A-Z]\w*', " ", shown)
    assert not set(re.findall(r"\b[A-Z]\w*", starts)) - TASK_WORDS, name


# ------------------------------------------------------------------------------------------------ what is visible


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\u200bb\u2060c\ufeffd", "abcd"),
        ("pay\u202e gnp.\u202c now\u2066x\u2069", "pay gnp. nowx"),
        ("hi" + "".join(chr(0xE0000 + ord(c)) for c in "ignore all"), "hi"),
        ("a\u00adb", "ab"),
        ("a\x00b\x1b[31m\x7f", "ab[31m"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("one\x85two\x0cthree", "one two three"),
        ("a\u200db", "ab"),
        ("x\U000e0101\U000e0102\ufe01y", "xy"),
        ("م\u200c\u200d\u200c\u200dن", "من"),
        ("\u3164\u2800a\u115f", "a"),
        ("half \ud83d", "half \ufffd"),
        ("\ue000private", "private"),
    ],
)
def test_invisible_characters_are_taken_out(text, seen):
    assert prompts.visible(text) == seen


@pytest.mark.parametrize(
    "text",
    [
        "plain\ttext\nand lines",
        "می‌خواهم بروم",
        "👩‍👩‍👧 and ❤️‍🔥 and 🏳️‍🌈",
        "क्‍ष",
        "犬を飼っています、Größe, naïve, O’Brien",
        "🫨 1️⃣ ½ €",
        "e\u0301",
    ],
)
def test_what_people_can_see_stays(text):
    assert prompts.visible(text) == text


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_seeing_never_crashes_and_leaves_nothing_that_hides(text):
    seen = prompts.visible(text)
    assert all(unicodedata.category(c) not in ("Co", "Cs") for c in seen)
    assert all(c in "\n\t" or unicodedata.category(c) != "Cc" for c in seen)
    assert all(c in "\u200c\u200d" for c in seen if unicodedata.category(c) == "Cf")
    assert "\u200d\u200d" not in seen
    seen.encode()


# ----------------------------------------------------------------------------------------------------------- fences


def test_the_same_key_has_the_same_marks_and_another_store_has_others():
    first = prompts.fence("hello", SECRET, "key")
    assert first == prompts.fence("hello", SECRET, "key")
    marks = {prompts.fence("hello", s, k)[:20] for s, k in ((SECRET, "key"), (SECRET, "other"), (b"another secret..", "key"))}
    assert len(marks) == 3


PIECES = st.sampled_from(
    [
        "<data ",
        "</data ",
        "<DATA x>",
        "< / data",
        "\n",
        "data>",
        ">",
        "</session>",
        "---END DATA---",
        "{{session}}",
        "<\u200bdata 1>",
        "</data>",
        "x",
    ]
    + [prompts.template(n) for n in prompts.names()]
)


@given(st.lists(PIECES, max_size=8).map("".join))
@settings(max_examples=1000, deadline=None)
def test_data_cannot_close_or_open_a_fence(payload):
    """There is exactly one opening and one closing mark, whatever the data hold, and the text between is one block."""
    fenced = prompts.fence(payload, SECRET, "a session's key")
    marks = re.findall(r"(?i)<\s*/?\s*data\b[^>]*>?", fenced)
    assert len(marks) == 2
    assert fenced.startswith(marks[0])
    assert fenced.endswith(marks[1])


def test_data_that_quote_the_real_marks_lose_the_bracket():
    """Even marks that leaked are only text; the rest of the words stay readable."""
    mark = prompts.fence("", SECRET, "k").splitlines()[0]
    fenced = prompts.fence(f"before {mark} after", SECRET, "k")
    assert fenced.count(mark) == 1
    assert "before ‹data" in fenced


def test_a_key_with_a_broken_character_still_makes_a_fence():
    assert prompts.fence("x", SECRET, "broken \udcff").startswith("<data ")
