"""What holds now: lining up at recall, and `memory conflicts`."""

from datetime import datetime
from types import SimpleNamespace

import kit
import pytest
from kit_talks import ME, talk, words

from dualtrace_local.config import read_conditions
from dualtrace_local.grounding.lineup import line_up
from dualtrace_local.records import Component, Question
from dualtrace_local.search import View, search
from dualtrace_local.store import Store

C8 = read_conditions().get("c8")


def told(text, day, *, anchor="thing", hedged=False):
    date = datetime(2024, 1, day) if day else None
    return SimpleNamespace(status="active", anchor=anchor, date=date, components=(Component(text, text, 0, hedged=hedged),))


@pytest.mark.parametrize(
    ("earlier", "later", "kind"),
    [
        ("The user's best time over 5 km is 27:12.", "The user's best time over 5 km is now 25:50.", "changed"),
        ("The user starts their shift at 6:00.", "The user now starts their shift at the bakery at 4:30.", "changed"),
        ("The user lives in Porto.", "The user moved to Lisbon and lives there.", "changed"),
        ("The user likes olives.", "The user no longer likes olives.", "changed"),
        ("The user has three cats.", "The user has four cats.", "changed"),
        ("The user's dentist is Dr. Kim.", "The user's new dentist is Dr. Olsen.", "changed"),
        ("The user likes olives.", "The user does not like olives.", "conflict"),
        ("The user's dentist is Dr. Kim.", "The user's dentist is Dr. Olsen.", "conflict"),
        ("The user bought a kayak for 40 euros.", "The user bought a kayak for 50 euros.", None),
        ("The user has a sister named Ada.", "The user has a sister named Ida.", None),
        ("The user is allergic to peanuts.", "The user has a boat named Ilse.", None),
        ("The user has three cats.", "The user has three cats.", None),
    ],
)
def test_a_change_supersedes_a_contradiction_does_not_and_two_events_are_two(earlier, later, kind):
    assert [p.kind for p in line_up([told(earlier, 1), told(later, 9)])] == ([kind] if kind else [])


def test_newer_is_not_truer_by_itself():
    three = told("The user has three cats.", 1)
    assert [p.kind for p in line_up([three, told("The user has four cats.", 9, hedged=True)])] == ["conflict"]
    assert [p.kind for p in line_up([three, told("The user has four cats.", 1)])] == ["conflict"]
    assert [p.kind for p in line_up([three, told("The user has four cats.", None)])] == ["conflict"]


def test_the_order_of_teaching_does_not_matter():
    old, new = told("The user has three cats.", 1), told("The user has four cats.", 9)
    assert [(p.earlier, p.later) for p in line_up([old, new])] == [(0, 1)]
    assert [(p.earlier, p.later) for p in line_up([new, old])] == [(1, 0)]


SHIFTS = [("I start my shift at the bakery at 6:00.", 1), ("I now start my shift at the bakery at 4:30.", 40)]


@pytest.fixture(scope="module")
def store(tmp_path_factory, embedder):
    path = tmp_path_factory.mktemp("change") / "s"
    talks = [talk(day, said, "I see.", facts=[(said, said.replace("I ", "The user ").replace("my", "their").replace("start ", "starts "))])
             for said, day in [*SHIFTS, ("I bought a kayak for 40 euros.", 2), ("I bought a kayak for 50 euros.", 30)]]  # fmt: skip
    with Store.open(path, embedder, create=True) as writer:
        writer.commit(talks)
    with Store.open(path, embedder) as reader:
        yield reader


def shown(store, text, embedder, tokens=600, **options):
    view = View(store, ME, C8.model_copy(update=options), name="c8")
    return search(view, Question("q", text, datetime(2024, 6, 30)), embedder, tokens, words).items


def test_the_current_value_comes_first_and_the_earlier_one_with_its_dates(store, embedder):
    current, earlier = (i for i in shown(store, "When does my shift at the bakery start?", embedder) if "shift" in i.fact)
    assert ("4:30" in current.fact, current.standing) == (True, f"changed from {earlier.handle}")
    assert ("6:00" in earlier.fact, earlier.standing) == (True, f"until 2024-04-10, then {current.handle}")


def test_an_earlier_value_brings_the_current_one_along(store, embedder):
    items = shown(store, "Was my shift at 6:00?", embedder, items=2)
    assert {"6:00", "4:30"} <= {i.fact.rstrip(".").split()[-1] for i in items}


def test_what_happened_twice_is_shown_twice(store, embedder):
    kayaks = [i for i in shown(store, "What did I pay for my kayaks?", embedder) if "kayak" in i.fact]
    assert [(i.standing, i.fact.split()[-2]) for i in kayaks] == [("", "40"), ("", "50")]


def test_memory_conflicts_lists_both_with_date_and_status(tmp_path):
    sessions = [kit.session(f"s{day}", f"2024-03-{day:02} 09:00", said, "I see.") for said, day in [SHIFTS[0], (SHIFTS[1][0], 20)]]
    kit.teach(tmp_path / "s", kit.jsonl(tmp_path / "in.jsonl", sessions))
    (pair,) = kit.document(kit.dualtrace("memory", "conflicts", "--store", tmp_path / "s", "--json", model=None))["pairs"]
    assert (pair["kind"], pair["earlier"]["date"], pair["later"]["date"]) == ("changed", "2024-03-01", "2024-03-20")
    assert (pair["earlier"]["status"], "4:30" in pair["later"]["says"]) == ("observed", True)
    assert "1 changed, 0 in conflict" in kit.dualtrace("memory", "conflicts", "--store", tmp_path / "s", model=None).stdout


def test_a_round_stays_with_the_memory_that_rests_on_it(store, embedder):
    for text in ("Was my shift at 6:00?", "When does my shift at the bakery start?"):
        for found in shown(store, text, embedder):
            assert not (found.fact and found.turns) or found.fact.rstrip(".").split()[-1] in found.turns[0].text


def test_one_of_two_in_conflict_is_said_to_hold_and_the_other_goes_until_undone(tmp_path):
    told_twice = [("My dentist is Doctor Varga.", 1), ("My dentist is Doctor Hollis.", 20)]
    sessions = [kit.session(f"s{day}", f"2024-03-{day:02} 09:00", said, "I see.") for said, day in told_twice]
    at = ("--store", tmp_path / "s")
    kit.teach(tmp_path / "s", kit.jsonl(tmp_path / "in.jsonl", sessions))
    (pair,) = kit.document(kit.dualtrace("memory", "conflicts", *at, "--json", model=None))["pairs"]
    assert pair["kind"] == "conflict"

    made = kit.document(kit.dualtrace("memory", "resolve", pair["earlier"]["id"][:12], *at, "--json"))["changes"]
    assert [(c["memory"]["id"], c["action"]) for c in made] == [(pair["earlier"]["id"], "verify"), (pair["later"]["id"], "retract")]
    assert kit.document(kit.dualtrace("memory", "conflicts", *at, "--json", model=None))["pairs"] == []
    again = kit.dualtrace("memory", "resolve", pair["earlier"]["id"], *at)
    assert (again.exit_code, "is in no conflict" in again.stderr) == (2, True)

    kit.dualtrace("memory", "undo", pair["later"]["id"], *at)
    (pair,) = kit.document(kit.dualtrace("memory", "conflicts", *at, "--json", model=None))["pairs"]
    assert (pair["kind"], pair["earlier"]["status"], pair["later"]["status"]) == ("conflict", "verified", "observed")


def test_what_the_owner_verified_is_not_superseded_by_what_was_only_said():
    old, new = told("The user has three cats.", 1), told("The user now has four cats.", 9)
    assert [p.kind for p in line_up([old, new])] == ["changed"]
    old.status = "verified"
    assert [p.kind for p in line_up([old, new])] == ["conflict"]
    new.status = "verified"
    assert [p.kind for p in line_up([old, new])] == ["changed"]
