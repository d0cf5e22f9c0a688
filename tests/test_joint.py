"""Writing both traces in one completion: the same flow as apart, without a request for a scene."""

import json
from datetime import datetime

import numpy as np
import pytest

from dualtrace_local.config import GateWay
from dualtrace_local.domains import prompts
from dualtrace_local.domains.personal import FOOTER, Personal
from dualtrace_local.encode import encode
from dualtrace_local.engines import Job
from dualtrace_local.engines.rules import reply as rules
from dualtrace_local.engines.scripted import ScriptedEngine
from dualtrace_local.joint import NONE_WRITTEN, Joint, encode_jointly
from dualtrace_local.records import Completion, Done, Failure, Finish, Session, Tier, Turn

SECRET = b"0123456789abcdef"
DAY = datetime(2022, 3, 10, 9, 30)
SAID = "By the way, I ran 12 km with Ines yesterday."
RAN = "The user ran 12 km with Ines yesterday."
TRACK = "The user stands on a wet track and holds a stop watch."
ANCHOR = {"anchor": '{"topic":"running-log"}'}


def words(text):
    return len(text.split())


def flat(texts):
    return np.full((len(texts), 3), 3**-0.5, dtype=np.float32)


def apart(texts):
    return np.eye(len(texts), 64, dtype=np.float32)


def notes(*pairs):
    return json.dumps({"notes": [{"fact": fact, "moment": moment} for fact, moment in pairs]})


def teach(reply, *turns, gate=GateWay.FACTS_FIRST, embed=flat, kind=Joint, write=encode_jointly):
    session = Session(tuple(Turn("user", t) for t in turns or (SAID,)), DAY)
    domain = kind(SECRET, words, gate)
    with ScriptedEngine(reply) as engine:
        (result,) = engine.run([Job("k", lambda: write(session, domain, embed))], window=1)
    return (result.value if isinstance(result, Done) else result), engine.requests


def test_one_completion_gives_fact_and_scene():
    encoded, requests = teach({"facts+scene": notes((RAN, TRACK)), **ANCHOR})
    assert [r.kind for r in requests] == ["facts+scene", "anchor"]
    (memory,) = encoded.memories
    assert memory.fact == RAN
    assert memory.scene.startswith(f"Picture: {TRACK} A note lying there reads: ran 12 km with Ines yesterday")
    assert memory.scene.endswith(FOOTER)
    assert (encoded.tier, memory.scene_refused) == (Tier.FULL, "")


def test_each_topic_gets_the_scene_that_was_written_beside_it():
    hens, tent = "The user keeps 9 hens in Hull.", "The user bought a green tent for 80 euros."
    coop, hill = "The user kneels in the straw and counts warm eggs.", "The user unrolls wet cloth on a windy hill."
    reply = {"facts+scene": notes((hens, coop), (tent, hill)), **ANCHOR}
    encoded, _ = teach(reply, "I keep 9 hens in Hull. I bought a green tent for 80 euros.", embed=apart)
    assert {m.fact: m.scene.split(" A note")[0] for m in encoded.memories} == {hens: f"Picture: {coop}", tent: f"Picture: {hill}"}


def test_a_scene_that_invents_is_refused_and_the_fact_stays():
    encoded, requests = teach({"facts+scene": notes((RAN, "The user stands beside Bertram under 40 red lamps in Vienna.")), **ANCHOR})
    (memory,) = encoded.memories
    assert (memory.fact, memory.scene) == (RAN, "")
    assert "that the session does not hold" in memory.scene_refused
    assert "scene" not in {r.kind for r in requests}


def test_a_fact_that_no_scene_was_written_beside_has_none():
    table = {"facts+scene": notes(), "details+scene": [Completion("{", Finish.LENGTH)] * 3, **ANCHOR}
    encoded, _ = teach(table, "Please remember that I ran 12 km with Ines.")
    assert encoded.memories
    assert {(m.scene, m.scene_refused) for m in encoded.memories} == {("", NONE_WRITTEN)}


def test_missed_details_are_asked_for_with_their_scenes():
    first = ("The user keeps hens.", "The user kneels in the straw of a low shed.")
    second = ("The user keeps 9 hens in Hull.", "The user counts warm eggs in a basket at dawn.")
    encoded, requests = teach({"facts+scene": notes(first), "details+scene": notes(second), **ANCHOR}, "I keep 9 hens in Hull.")
    assert [r.kind for r in requests] == ["facts+scene", "details+scene", "anchor"]
    assert "9 hens in Hull" in encoded.memories[0].fact
    assert encoded.memories[0].scene


def test_a_cut_reply_is_asked_for_again_and_its_scenes_do_not_count():
    replies = [Completion('{"notes":[{"fact":"The us', Finish.LENGTH), notes((RAN, TRACK))]
    encoded, requests = teach({"facts+scene": replies, **ANCHOR})
    assert [r.kind for r in requests] == ["facts+scene", "facts+scene", "anchor"]
    assert TRACK in encoded.memories[0].scene
    failed, _ = teach({"facts+scene": Completion("{", Finish.LENGTH)})
    assert isinstance(failed, Failure)


def test_bigger_models_write_a_picture_into_each_group():
    gate = '{"disclosed":"I ran 12 km with Ines yesterday","relevance":2,"specificity":2,"explicitness":2}'
    picture = "Picture: the user leans on a fence beside Ines after 12 km yesterday, breathing hard."
    group = {"topic": "running-log", "kind": "relational", "category": "sport", "facts": [RAN], "picture": picture}
    encoded, requests = teach({"gate": gate, "facts+scene": json.dumps({"groups": [group]})}, gate=GateWay.SCORED)
    assert [r.kind for r in requests] == ["gate", "facts+scene"]
    assert encoded.memories[0].scene == f"{picture} {FOOTER}"
    assert encoded.memories[0].info_type == "relational"


@pytest.mark.parametrize("gate", list(GateWay))
def test_the_rule_made_model_writes_the_same_facts_jointly_and_apart(gate):
    together, _ = teach(rules, SAID, "I keep 9 hens.", gate=gate)
    alone, _ = teach(rules, SAID, "I keep 9 hens.", gate=gate, kind=Personal, write=encode)
    assert [m.components for m in together.memories] == [m.components for m in alone.memories]
    assert all(m.scene for m in together.memories)


def test_joint_writing_has_a_fingerprint_of_its_own():
    for gate in GateWay:
        joint, plain = Joint(SECRET, words, gate), Personal(SECRET, words, gate)
        assert joint.shapes != plain.shapes
        assert set(joint.prompt_names) - set(plain.prompt_names)
        assert set(joint.prompt_names) <= set(prompts.names())
