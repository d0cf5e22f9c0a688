"""User and project are on every row, and no way to a row passes them by; the few that care for a store as a whole are named here."""

import inspect
import json

import kit
import pytest
from test_store import ANN, outcome, taught

from dualtrace_local import Memory
from dualtrace_local.cli import main
from dualtrace_local.cli.reference import commands
from dualtrace_local.config import read_models
from dualtrace_local.pipeline.forget import Which
from dualtrace_local.records import Scope
from dualtrace_local.store import Selection, Store

BOB = Scope("bob", "boat")

WHOLE = {
    "known": "keys and fingerprints, to teach nothing twice",
    "forgotten": "keys, to teach nothing that was forgotten",
    "sessions": "the ledger of a run, which has one scope; commands give theirs",
    "haystack": "keys of a question's sessions",
    "info": "counts",
    "dump": "equality of two stores, asked for by name",
    "words_indexed": "a fact about the index",
    "index_words": "a fact about the index",
    "secret": "no row",
    "open": "no row",
    "close": "no row",
    "commit": "writes what it is given",
    "restore": "writes what it is given",
    "set_haystacks": "writes what it is given",
    "allow_again": "writes what it is given",
    "remember_forgotten": "writes what it is given",
    "change": "looks the memory up in its own scope",
    "forget": "rows that a scope has chosen",
    "needles": "rows that a scope has chosen",
    "rows_left": "rows that a scope has chosen",
    "history": "memories that a scope has chosen",
    "path": "no row",
}
"""Public names of a store without a scope among their arguments, and why."""

CARING = {"dump", "info", "check", "optimize", "reembed", "migrate"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory, embedder):
    path = tmp_path_factory.mktemp("shared") / "s"
    return taught(path, embedder, [outcome(n) for n in range(2)], [outcome(n, BOB) for n in range(3)])


def test_every_reading_method_of_a_store_takes_a_scope():
    without = set()
    for name, member in inspect.getmembers(Store):
        if name.startswith("_") or not callable(member):
            continue
        kinds = [str(p.annotation) for p in inspect.signature(member).parameters.values()]
        if not any(kind in ("Scope", "Selection") for kind in kinds):
            without.add(name)
    assert without <= WHOLE.keys(), f"say why {without - WHOLE.keys()} needs no scope, or give it one"


def test_every_command_on_a_store_takes_a_scope_or_is_about_the_store_as_a_whole():
    for name, command in commands(main, "dualtrace"):
        options = {p.name for p in command.params}
        if "store_path" in options and not (name.split()[1] == "store" and name.split()[2] in CARING) and name != "dualtrace memory import":
            assert "scope" in options, name


def test_no_reading_method_crosses_scopes(shared, embedder):
    with Store.open(shared, embedder) as store:
        mine, theirs = store.memories(ANN), store.memories(BOB)
        ids = [m.id for m in (*mine, *theirs)]
        assert {m.scope for m in mine} == {ANN}
        assert set(store.by_id(ids, ANN)) == {m.id for m in mine}
        assert {r.scope for r in store.rounds(ANN)} == {ANN}
        assert store.rounds_by_id([r.id for r in store.rounds(BOB)], ANN) == {}
        assert store.retracted(ANN) == []
        assert {row.scope for row in store.sessions(ANN)} == {ANN}
        assert store.known(ANN).keys().isdisjoint(store.known(BOB))
        assert {line["user"] for line in store.archived(ANN) if "user" in line} == {"ann"}
        for kind in ("fact", "fact+scene", "anchor", "round"):
            owners = set(store.keys(Selection(ANN), kind).owner_ids)
            assert owners <= {m.id for m in mine} | {r.id for r in store.rounds(ANN)}, kind
        words = sorted({word for scope in (ANN, BOB) for key in store.keys(Selection(scope), "fact").words for word in key})
        assert {hit.owner_id for hit in store.matching(Selection(ANN), "fact", words, 50)} == {m.id for m in mine}


def test_no_command_crosses_scopes(shared, tmp_path):
    """What Bob has is not shown, corrected, exported or forgotten for Ann."""
    his = kit.memories(shared, scope="user=bob")
    assert his == [], "the project counts too"
    theirs = kit.document(kit.dualtrace("memory", "list", "--store", shared, "--json", "--scope", "user=bob", "--scope", "project=boat"))[
        "memories"
    ]
    assert len(theirs) == 6
    ann = ("--store", shared, "--scope", "user=ann", "--scope", "project=home")
    before = kit.dump(shared)
    for arguments in (("show",), ("edit", "--category", "x"), ("verify",), ("retract",), ("undo",), ("history",), ("forget", "--yes")):
        result = kit.dualtrace("memory", arguments[0], theirs[0]["id"], *arguments[1:], *ann)
        assert result.exit_code == 1, arguments
        assert "is not there" in result.stderr
    for which in (("--session", theirs[0]["session_key"]), ("--search", "day 2"), ("--source", "none.json")):
        assert kit.dualtrace("memory", "forget", *which, "--yes", *ann).exit_code == 1, which
    assert kit.dump(shared) == before
    kit.dualtrace("memory", "export", tmp_path / "a.jsonl", *ann)
    assert {json.loads(line).get("user", "ann") for line in (tmp_path / "a.jsonl").read_text().splitlines()} == {"ann"}


def test_the_python_api_stays_in_its_scope(shared):
    models = read_models().with_roles(encode="scripted", read="scripted", judge="scripted")
    with Memory.open(shared, user="ann", project="home", models=models) as ann:
        found = ann.search("What did I spend day 2 on?", condition="history")
        with Store.open(shared, None) as store:
            keys = set(store.known(ANN))
        assert {i.session_key for i in found.items} <= keys
        assert {i.session_key for i in ann.search("a leaking canoe").items} <= keys
        plans = []
        assert ann.forget(Which(everything=True), lambda plan: bool(plans.append(plan))) is None
        assert {m.scope for m in plans[0].memories} == {row.scope for row in plans[0].sessions} == {ANN}
