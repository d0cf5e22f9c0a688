"""Random input for whatever reads text that others wrote: an entry or one line, never an exception; and rules that hold for any text."""

import gzip
import io
import json
import re
import zipfile
from datetime import date, datetime

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dualtrace_local.corpus import parse_date, read
from dualtrace_local.dates import describe_distance, find_events
from dualtrace_local.domains import prompts
from dualtrace_local.engines.chat import KNOWN_CONTROLS, neutralise
from dualtrace_local.errors import DataError, StoreError
from dualtrace_local.masking import MASK, mask
from dualtrace_local.records import Entry, Rejected, Scope
from dualtrace_local.store.tables import Selection, is_any

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SECRET = b"0123456789abcdef"

WORDS = st.text(max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("id", "text", "role", "x")), inner, max_size=3),
    max_leaves=6,
)

TURN = {"role": "user", "content": "I row."}
MESSAGE = {"author": {"role": "user"}, "create_time": 1.7e9, "content": {"content_type": "text", "parts": ["I row."]}}
WHOLE = {
    "sessions": {"id": "s", "date": "2024-03-02", "turns": [TURN]},
    "sharegpt": {"id": "s", "conversations": [{"from": "human", "value": "I row."}]},
    "chatgpt": {
        "title": "t", "create_time": 1.7e9, "current_node": "b", "conversation_id": "c",
        "mapping": {"a": {"parent": None, "children": ["b"], "message": None}, "b": {"parent": "a", "children": [], "message": MESSAGE}},
    },
    "claude": {
        "uuid": "u", "name": "n", "created_at": "2024-03-02T08:00:00Z",
        "chat_messages": [{"uuid": "m", "parent_message_uuid": "0", "sender": "human", "text": "I row.", "created_at": "2024-03-02",
                           "content": [{"type": "text", "text": "I row."}], "attachments": [{"file_name": "f", "extracted_content": "x"}]}],
    },
    "longmemeval": {
        "question_id": "q", "question_type": "multi-session", "question": "What?", "question_date": "2024-03-02", "answer": "x",
        "answer_session_ids": ["s"], "haystack_session_ids": ["s"], "haystack_dates": ["2024-03-02"], "haystack_sessions": [[TURN]],
    },
    "locomo": {
        "sample_id": "l", "qa": [{"question": "What?", "answer": "x", "category": 1, "evidence": ["D1:1"]}],
        "conversation": {"speaker_a": "Ada", "speaker_b": "Bo", "session_1_date_time": "1:56 pm on 8 May, 2023",
                         "session_1": [{"speaker": "Ada", "dia_id": "D1:1", "text": "I row."}]},
    },
}  # fmt: skip
"""A good record of each format."""


def places(value, at=()):
    """Every place inside of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, v in inner for place in places(v, (*at, key)))]


def changed(value, at, new):
    """``value`` with ``new`` at a place; ``...`` takes it away."""
    if not at:
        return None if new is ... else new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(at) == 1 and new is ...:
        del copy[at[0]]
    else:
        copy[at[0]] = changed(copy[at[0]], at[1:], new)
    return copy


@st.composite
def records(draw):
    """A good record with up to three places replaced or taken away."""
    record = WHOLE[draw(st.sampled_from(sorted(WHOLE)))]
    for _ in range(draw(st.integers(0, 3))):
        if not (inside := [p for p in places(record) if p]):
            break
        record = changed(record, draw(st.sampled_from(inside)), draw(JSON | st.just(...)))
    return record


def all_of(path):
    """What is read of a file, None where it is refused as a whole; anything else is a bug."""
    try:
        found = list(read(path))
    except DataError:
        return None
    assert all(isinstance(e, Entry | Rejected) for e in found)
    for one in found:
        if isinstance(one, Rejected):
            assert "\n" not in str(one)
        else:
            assert all(len(s.key) == 32 and not re.search("[\x00-\x1f]", s.external_id) for s in one.sessions)
            assert all(isinstance(t.text, str) and isinstance(t.role, str) for s in one.sessions for t in s.turns)
    return found


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_the_good_records_are_good(tmp_path, name):
    (tmp_path / "f").write_text(json.dumps([WHOLE[name]]))

    assert [type(e) for e in all_of(tmp_path / "f")] == [Entry]


@given(st.lists(records(), min_size=1, max_size=3), st.booleans())
@settings(FEW, max_examples=250)
def test_p08_records_that_are_changed_anywhere(tmp_path, made, as_lines):
    """Each gives entries or one line, and a good record behind them is still read."""
    rows = [*made, WHOLE["sessions"] | {"id": "last"}]
    (tmp_path / "f").write_text("\n".join(map(json.dumps, rows)) if as_lines else json.dumps(rows))

    found = all_of(tmp_path / "f")
    assert found is None or (isinstance(found[-1], Entry) and found[-1].sessions[0].external_id == "last")


@given(st.sampled_from(sorted(WHOLE)), st.integers(0, 400), st.binary(max_size=6), st.integers(0, 30), st.sampled_from(("", "gzip", "zip")))
@settings(FEW, max_examples=150)
def test_p04_files_that_are_cut_or_overwritten_anywhere(tmp_path, name, at, new, gone, pack):
    content = json.dumps([WHOLE[name]] * 2).encode()
    if pack == "gzip":
        content = gzip.compress(content, mtime=0)
    elif pack == "zip":
        with zipfile.ZipFile(made := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("c.json", content)
        content = made.getvalue()
    at = min(at, len(content))
    (tmp_path / "f").write_bytes(content[:at] + new + content[at + gone :])

    all_of(tmp_path / "f")


LINES = st.sampled_from(
    (
        *("# 2024-03-09 18:20 Loom", "# A title", "## User", "## Assistant:", "User: I row.", "**You:** I row.", "ChatGPT said:", "---"),
        *("date: soon", "date: 2024-02-30", "title: [x", "a: &a [*a]", "# 2024-13-01", "\ufeff", "```", "{}", "\u2028", "x" * 300, ""),
    )
)


@given(st.lists(LINES | WORDS, max_size=14), st.sampled_from(("\n", "\r\n")), st.binary(max_size=3))
@settings(FEW, max_examples=200)
def test_p08_chats_as_text_of_any_lines(tmp_path, lines, end, tail):
    (tmp_path / "f").write_bytes(end.join(lines).encode("utf-8", "replace") + tail)

    all_of(tmp_path / "f")


@given(
    st.lists(
        st.tuples(st.sampled_from(("user", "assistant")), st.text(st.characters(codec="utf-8", exclude_characters="\r"))),
        min_size=1,
        max_size=5,
    )
)
@FEW
def test_a_chat_written_as_text_comes_back(tmp_path, turns):
    """Whatever is said, but for a line that is itself a heading of this form, and white space around."""
    turns = [(role, "\n".join(line for line in text.split("\n") if not line.startswith("#")).strip()) for role, text in turns]
    (tmp_path / "f").write_text("".join(f"## {role.title()}\n{text}\n" for role, text in turns), encoding="utf-8", newline="")

    (entry,) = all_of(tmp_path / "f")
    assert [(t.role, t.text) for t in entry.sessions[0].turns] == turns


# ------------------------------------------------------------------------------------------------------- dates


@given(st.text(st.sampled_from("0123456789-/.: TZapm()+Mon"), max_size=24) | WORDS)
@FEW
def test_any_text_is_a_date_or_none(text):
    assert isinstance(parse_date(text), datetime | None)


@given(st.datetimes(min_value=datetime(1000, 1, 1)), st.sampled_from(("%Y-%m-%d %H:%M:%S", "%Y/%m/%d (%a) %H:%M:%S", "%Y.%m.%dT%H:%M:%SZ")))
@FEW
def test_every_date_that_is_written_is_read(when, form):
    assert parse_date(when.strftime(form)) == when.replace(microsecond=0)


SPOKEN = st.sampled_from(
    "yesterday|last Thursday|in two weeks|the day before yesterday|a month ago|on 31 February|next year|3/10|at 4:30|29 Feb 2023|"
    "in 99999 years|twelve days ago|since May|on Friday|the 45th|0 days ago|last".split("|")
)


@given(st.lists(SPOKEN | WORDS, max_size=5).map(" ".join), st.none() | st.datetimes())
@example("in 99999 years", datetime(9999, 12, 31))
@example("a month ago", datetime(1, 1, 1))
@FEW
def test_spoken_dates_are_days_or_words_at_any_time(text, said_on):
    for event in find_events(text, said_on):
        assert event.spoken in text
        for day in (event.day, event.end):
            assert not day or date.fromisoformat(day)


@given(st.none() | st.datetimes(), st.none() | st.datetimes())
@FEW
def test_any_distance_is_said(one, other):
    assert (describe_distance(one, other) == "") == (one is None or other is None)


# ------------------------------------------------------------------------------------------------------- masking

PROSE = st.text(st.sampled_from("abc defg.,\n'\"()-éß犬"), max_size=60)


@given(PROSE, PROSE, st.from_regex(r"[A-Z][a-z]{3,6}[0-9]{3,5}[!#]", fullmatch=True))
@FEW
def test_a_named_password_is_never_seen_whatever_stands_around(before, after, secret):
    masked = mask(f"{before} My password is {secret} {after}")

    assert secret not in masked
    assert MASK in masked
    assert mask(masked) == masked


@given(PROSE, PROSE, st.sampled_from(("ghp_9Zt3kQw8LmNb5Vc2Xr7Yd1Hf6Js4Pa0Ge3U", "4556 7375 8689 9855", "GB33BUKB20201555555555")))
@FEW
def test_a_secret_with_a_shape_is_found_between_any_words(before, after, secret):
    assert secret not in mask(f"{before} {secret} {after}")


@given(st.text(max_size=200))
@FEW
def test_masking_any_text_ends_and_is_stable(text):
    assert mask(mask(text)) == mask(text)


# ------------------------------------------------------------------------------------------------------- prompts, filters


@given(st.text(max_size=100), st.text(max_size=20))
@FEW
def test_p17_any_text_stays_between_its_marks(text, key):
    fenced = prompts.fence(text, SECRET, key)
    first, *_, last = fenced.split("\n")

    assert last == f"</{first[1:]}"
    assert fenced.lower().count("<data") == 1
    assert fenced.lower().count("</data") == 1
    assert "\u202e" not in fenced


CONTROL = st.sampled_from(
    ("<|im_start|>", "<|im_", "end|>", "[INST]", "</s>", "<<SYS>>", "<think>", "<start_of_turn>", "<", "|", ">", "x", " ")
)


@given(st.lists(CONTROL, max_size=12).map("".join))
@FEW
def test_p17_no_control_string_is_left_however_it_is_put_together(text):
    clean = neutralise(text, KNOWN_CONTROLS)

    assert not KNOWN_CONTROLS.search(clean)
    assert clean.replace(" ", "") == text.replace(" ", "")


@given(st.text(max_size=40), st.text(max_size=40))
@FEW
def test_no_name_of_a_scope_is_part_of_a_filter(user, project):
    try:
        where = Selection(Scope(user, project)).where()
    except StoreError:
        return  # half a surrogate pair
    column, _, value = where.partition(" IN ")

    assert column == "scope"
    assert set(value) <= set("('0123456789abcdef')")


@given(st.text(max_size=20))
@example("abc\n")
@example("ABCDEF' OR '1'='1")
@FEW
def test_only_hexadecimal_ids_get_into_a_filter(text):
    try:
        where = is_any("session_key", [text])
    except StoreError:
        return
    assert set(where.removeprefix("session_key IN ")) <= set("('0123456789abcdef')")
