"""A request as prompt token ids, through the tokenizer's own chat template. The texts in it cannot forge a control token."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from dualtrace_local.records import Request


def control_strings(tokenizer: Any) -> tuple[str, ...]:
    """Every added or special token of ``tokenizer`` that a text could spell out, longest first.

    White space and single characters are left out: some tokenizers have tokens for runs of spaces, which control nothing.
    """
    added = (str(token) for token in tokenizer.added_tokens_decoder.values())
    named = (str(token) for token in tokenizer.all_special_tokens)
    strings = {string.strip() for string in (*added, *named)}
    return tuple(sorted((s for s in strings if len(s) > 1), key=lambda s: (-len(s), s)))


@lru_cache(maxsize=8)
def _pattern(controls: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, controls)))


def neutralise(text: str, controls: tuple[str, ...]) -> str:
    """``text`` with a space behind the first character of every control string: ``<|im_end|>`` becomes ``< |im_end|>``.

    A person still reads what was typed. Repeated until nothing is left, since breaking one string can leave an overlapping one.
    """
    if not controls:
        return text
    pattern = _pattern(controls)
    while pattern.search(text):
        text = pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text


def render(tokenizer: Any, request: Request, chat_template_kwargs: dict[str, Any]) -> list[int]:
    """The prompt ids of ``request``: system and user message, open for the assistant. The template alone sets control tokens."""
    controls = control_strings(tokenizer)
    messages = [
        {"role": "system", "content": neutralise(request.system, controls)},
        {"role": "user", "content": neutralise(request.user, controls)},
    ]
    ids = tokenizer.apply_chat_template(
        messages if request.system else messages[1:],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        **chat_template_kwargs,
    )
    return list(ids)
