"""Flow: Answer and Gold -> Verdict. A verdict is a field with two values, or there is none; nothing is read out of free text."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from .domains import prompts
from .engines.driver import OutputError, ask
from .records import ABSTENTION, Answer, Flow, Gold, Request, Verdict

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
    verdict: Literal["correct", "wrong"]

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """As pydantic's, after a closed ``<think>`` block."""
        text = json_data if isinstance(json_data, str) else json_data.decode()
        return super().model_validate_json(re.sub(r"^\s*<think>.*?</think>", "", text, count=1, flags=re.DOTALL), **options)


def rubric_name(gold: Gold) -> str:
    """The rubric file for a question; abstention questions have their own, whatever their kind."""
    return "rubric_abstention" if gold.abstention else RUBRICS.get(gold.kind, "rubric_plain")


def request(answer: Answer, gold: Gold, secret: bytes, seed: int = 0) -> Request:
    """The judge's prompt: question, right answer, given answer, rubric."""
    material = json.dumps(
        {"question": answer.question, "right answer": gold.answer_text, "given answer": answer.text}, ensure_ascii=False, indent=0
    )
    fenced = prompts.fence(material, secret, material)
    text = prompts.fill("judge", material=fenced, rubric=prompts.template(rubric_name(gold)))
    return Request("judge", prompts.template("judge_system"), text, Ruling, 24, seed=seed)


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
