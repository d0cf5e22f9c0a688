"""The reader of published.yaml: the numbers of the paper, with the model, judge and protocol that they belong to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dualtrace_local.config import Strict, package_file, read_yaml


class PublishedCondition(Strict):
    """One row of the paper's table 1: accuracies in per cent, nothing where they are not known.

    ``correct`` of ``n`` are the counts behind ``overall`` where they are known. ``source`` says whether the numbers are
    the paper's own or those of its reference repository.
    """

    overall: float | None = None
    correct: int | None = None
    n: int | None = None
    kinds: dict[str, float] = Field(default_factory=dict)
    source: Literal["paper", "repository"] = "paper"


class PublishedKind(Strict):
    """One row of the paper's table 2: the difference in points, its interval, p, and questions that only the first got right."""

    difference: float
    low: float | None = None
    high: float | None = None
    p_one_sided: float
    only_first: int


class PublishedComparison(Strict):
    """The paper's paired comparison, in points and counts, whole and by kind. The bootstrap's p is said to be below ``p_below``."""

    first: str
    second: str
    difference: float
    low: float
    high: float
    both: int
    neither: int
    only_first: int
    only_second: int
    chi_squared: float
    p_below: float
    kinds: dict[str, PublishedKind]

    @property
    def n(self) -> int:
        """Questions compared."""
        return self.both + self.neither + self.only_first + self.only_second


class PublishedTokens(Strict):
    """Mean tokens of one session or one question."""

    prompt: int
    completion: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.prompt + self.completion


class PublishedCost(Strict):
    """What a condition took: tokens a session and a question, share of sessions stored, memories inserted, share of them with a scene."""

    teach: PublishedTokens
    recall: PublishedTokens
    coverage: float
    inserts: int | None = None
    dual: float | None = None


class Published(Strict):
    """published.yaml. ``notes`` name what is not known, and where the paper disagrees with itself."""

    source: str
    model: str
    judge: str
    embedder: str
    protocol: str
    questions: int
    kinds: tuple[str, ...]
    conditions: dict[str, PublishedCondition]
    comparison: PublishedComparison
    costs: dict[str, PublishedCost]
    notes: tuple[str, ...] = ()

    def value(self, condition: str, kind: str) -> float | None:
        """Accuracy in per cent, None where it is not known."""
        if condition not in self.conditions:
            return None
        found = self.conditions[condition]
        return found.overall if kind == "overall" else found.kinds.get(kind)


def read_published() -> Published:
    """The shipped published.yaml."""
    return read_yaml(package_file("published.yaml"), Published)
