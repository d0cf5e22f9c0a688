"""A request as prompt token ids, through the tokenizer's own chat template. The texts in it cannot forge a control token.

For a model behind a server, whose tokenizer is not here, there are a pattern of what control tokens look like and an estimate of tokens.
"""

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


KNOWN_CONTROLS = re.compile(
    r"<[|｜][^\s<>|｜]{1,40}[|｜]?>|<[^\s<>|｜]{1,40}[|｜]>"  # ChatML, Llama 3, Phi, Command, GPT-OSS, DeepSeek, Gemma 4, GLM
    r"|\[/?(?:INST|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,20}|MODEL_SETTINGS|IMG\w{0,10}|gMASK)\]|</?s>"  # Mistral, GLM
    r"|</?SYS>|\[\|[^\s\[\]|]{1,40}\|\]"  # Llama 2 (its double brackets hold these), EXAONE
    r"|<(?:start|end)_of_\w{1,20}>|<(?:bos|eos|pad|unk|mask|sop|eop|\w{1,20}_TOKEN|unused\d{1,4})>"  # Gemma, SentencePiece, Command
    r"|</?(?:think|tool_call|tool_response|tools|answer)>|<extra_id_\d{1,4}>",  # Qwen, T5
    re.IGNORECASE,
)
"""What the control tokens of the common model families look like, for models whose own list is behind a server."""


def neutralise(text: str, controls: tuple[str, ...] | re.Pattern[str]) -> str:
    """``text`` with a space behind the first character of every control string: ``<|im_end|>`` becomes ``< |im_end|>``.

    A person still reads what was typed. Repeated until nothing is left, since breaking one string can leave an overlapping one.
    """
    if not controls:
        return text
    pattern = controls if isinstance(controls, re.Pattern) else _pattern(controls)
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


_WORDS = re.compile(r"[A-Za-z]+| (?=[A-Za-z])")


def estimate(text: str) -> int:
    """Tokens of ``text`` for a model whose tokenizer is not here, meant not to be too few.

    Three letters a token, every other ASCII character one, and three bytes of UTF-8 two for the rest. That is about half too many for
    English prose, and just enough for scripts that a model's tokenizer was not made for.
    """
    letters = sum(map(len, _WORDS.findall(text)))
    others = sum(map(str.isascii, text)) - letters
    foreign = len(text.encode("utf-8", "replace")) - letters - others
    return -(-letters // 3) + others + -(-foreign * 2 // 3)
