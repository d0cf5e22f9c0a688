"""Flow: Answer and Gold -> Verdict. A verdict is a field with two values, or there is none; nothing is read out of free text."""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from .domains import prompts
from .engines.driver import OutputError, ask
from .records import ABSTENTION, Answer, Flow, Gold, Request, State, Verdict, digest_of

RUBRICS = {
    "temporal-reasoning": "rubric_temporal",
    "knowledge-update": "rubric_update",
    "single-session-preference": "rubric_preference",
}
"""Rubric by question kind as LongMemEval distinguishes them (its paper, appendix on evaluation); others use the plain one."""

PROMPTS = ("judge_system", "judge", "rubric_plain", *RUBRICS.values(), "rubric_abstention")


class Ruling(BaseModel):
    """What the judge writes. A finished thought before the field is not part of it; one that fills the reply leaves no verdict."""

    model_config = ConfigDict(extra="forbid")
    verdict: Literal["wrong", "correct"]

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """As pydantic's, after a closed ``<think>`` block."""
        text = json_data if isinstance(json_data, str) else json_data.decode()
        return super().model_validate_json(re.sub(r"^\s*<think>.*?</think>", "", text, count=1, flags=re.DOTALL), **options)


def rubric_name(gold: Gold) -> str:
    """The rubric file for a question; abstention questions have their own, whatever their kind."""
    return "rubric_abstention" if gold.abstention else RUBRICS.get(gold.kind, "rubric_plain")


def request(answer: Answer, gold: Gold, secret: bytes, seed: int = 0) -> Request:
    """The judge's prompt: question, given answer, right answer, rubric. Each is one line, so that none can pass for another.

    The given answer comes first: with one rubric for all, the embedded model agreed with 82 of 100 development labels so, with 69
    the other way round.
    """
    lines = (("Question", answer.question), ("Given answer", _shortened(answer.text)), ("Right answer", gold.answer_text))
    material = "\n".join(f"{name}: {' '.join(text.split())}" for name, text in lines)
    fenced = prompts.fence(material, secret, material)
    text = prompts.fill("judge", material=fenced, rubric=prompts.template(rubric_name(gold)))
    return Request("judge", prompts.template("judge_system"), text, Ruling, 24, seed=seed)


LONGEST = 500
"""Characters of an answer that the judge reads, half of them from its end: small judges lose the thread in long ones."""


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def shaped_by() -> dict[str, str]:
    """Digests of all that shapes what the judge is asked, for fingerprints: the prompt files, and one request as it is built from them.

    The request is about an invented answer that is too long to be read whole, so that the cut counts too.
    """
    long = Answer("", "What is kept in the shed?", "", State.A, "".join(f"{n}, " for n in range(LONGEST)), abstained=False)
    built = request(long, Gold("", "A ladder.", "", abstention=False), b"")
    files = {name: prompts.digest(name) for name in PROMPTS}
    return files | {"request": digest_of(built.system, built.user, built.output.model_json_schema(), built.max_tokens, length=16)}


def judge(answer: Answer, gold: Gold, by: str, secret: bytes, seed: int = 0) -> Flow[Verdict]:
    """Give a verdict. The fixed abstention is decided by rule: right for an abstention question, wrong for any other.

    A judge whose output never becomes a valid field gives a verdict of None with the reason, which counts as unscored.
    """
    if answer.abstained and answer.text == ABSTENTION:
        return Verdict(answer.question_id, answer.condition, gold.abstention, "rule", "abstained")
    try:
        ruling = yield from ask(request(answer, gold, secret, seed))
    except OutputError as problem:
        return Verdict(answer.question_id, answer.condition, None, by, str(problem))
    return Verdict(answer.question_id, answer.condition, ruling.verdict == "correct", by)
