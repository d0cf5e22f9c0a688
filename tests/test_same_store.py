"""The same store comes out of each engine: what a model writes is all that may differ, and here every model is made to write the same.

The rule-made model's reply to a request becomes the only text that its constraint allows, so real engines write it token by token: prompts,
constraints, finish reasons, order, retries and the way into the store are the engines' own.
"""

import json
from dataclasses import replace
from typing import Literal

import kit
import kit_server
import pytest
from pydantic import ConfigDict, create_model

from dualtrace_local import config, weights
from dualtrace_local.engines import Engine, make_engine, rules
from dualtrace_local.pipeline.memory import Memory
from dualtrace_local.pipeline.parts import Parts
from dualtrace_local.records import Scope
from dualtrace_local.store import Store

SESSIONS = [
    kit.session("a1", "2024-03-02 09:00", "I named my boat Marigold. It is 7 metres long and I moor it in Hull.", "A lovely name."),
    kit.session("a2", "2024-03-05 10:00", "Explain tides in one sentence.", "The moon pulls the sea."),
    kit.session("a3", "2024-04-09 18:20", "My sister Ada moved to Lisbon yesterday.", "Big step.", "I will visit her in May."),
    kit.session("a4", "2024-05-01 07:45", "Ich mag Käse; we keep 3 ewes called Émilie, Zoë and “Bo”.", "Nice."),
]
SMALL = "smollm2-135m"


class Dictated(Engine):
    """An engine whose model may write only what the rule-made one would: ``engine`` gets the request with a type of one value."""

    def __init__(self, engine):
        self.engine = engine
        self.name, self.model, self.limit = engine.name, engine.model, engine.limit
        self.dictated = []

    def submit(self, ticket, request, priority):
        text = rules.reply(request)
        self.dictated.append(text)
        self.engine.submit(ticket, replace(request, output=only(json.loads(text)), max_tokens=len(text) + 8), priority)

    def poll(self, timeout):
        return self.engine.poll(timeout)

    def cancel(self, ticket):
        self.engine.cancel(ticket)

    def restart(self):
        self.engine.restart()

    def close(self):
        self.engine.close()

    def count(self, text):
        return self.engine.count(text)

    def count_request(self, request):
        return self.engine.count_request(request)


def only(value):
    """A type of which ``value`` is the only one."""
    if isinstance(value, dict):
        return create_model("Only", __config__=ConfigDict(extra="forbid"), **{name: (only(v), ...) for name, v in value.items()})
    if isinstance(value, list):
        return tuple[tuple(only(v) for v in value)] if value else tuple[()]
    return Literal[value]


@pytest.fixture(params=["scripted", *(pytest.param(name, marks=pytest.mark.model) for name in ("transformers", "vllm", "server"))])
def engine(request, tmp_path):
    models = config.read_models()
    if request.param == "scripted":
        yield make_engine("scripted", models.spec("scripted"), None)
        return
    folder = weights.ready(SMALL, models.spec(SMALL))
    if request.param == "server":
        with kit_server.vllm_server(folder, "tiny", "--max-model-len", "2048", log=tmp_path / "log") as address:
            spec = models.with_server([address]).spec(f"the only model at {address}")
            with make_engine("tiny", spec, None) as made:
                yield made
        return
    with make_engine(SMALL, models.spec(SMALL).model_copy(update={"engine": request.param}), folder) as made:
        yield made


def taught(folder, embedder, engine=None):
    """Totals and dump of a store with the sessions in it, taught under the scripted model's name: nothing but the engine differs."""

    class Chosen(Parts):
        @property
        def embedder(self):
            return embedder

        def engine(self, role):
            return engine or super().engine(role)

    models = config.read_models().with_roles(encode="scripted", read="scripted", judge="scripted")
    source = kit.jsonl(folder / "chats.jsonl", SESSIONS)
    with Memory(folder / "store", Chosen(models), Scope()) as memory:
        totals = memory.teach(source)
    with Store.open(folder / "store", embedder) as store:
        return totals, list(store.dump())


def test_every_engine_fills_the_same_store(engine, embedder, tmp_path_factory):
    expected, rows = taught(tmp_path_factory.mktemp("expected"), embedder)
    dictated = Dictated(engine)

    totals, found = taught(tmp_path_factory.mktemp("found"), embedder, dictated)

    assert found == rows
    assert [r["table"] for r in rows].count("memories") >= 3
    assert (totals.read, totals.taught, totals.dropped, totals.failed) == (expected.read, expected.taught, expected.dropped, 0)
    assert sum(u.calls for u in totals.usage.values()) == sum(u.calls for u in expected.usage.values()) == len(dictated.dictated)
    assert len(set(dictated.dictated)) > len(SESSIONS)
