"""One stage of a run: many items through an engine, what is finished kept in durable batches, failures noted as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dualtrace_local.config import BATCH, Role
from dualtrace_local.engines.driver import Job
from dualtrace_local.masking import mask
from dualtrace_local.records import Done, Failure, Usage

from .folder import Meter, RunFolder, tally
from .parts import Parts


def work_through(
    stage: str,
    condition: str,
    role: Role,
    pending: tuple[int, int],
    jobs: Callable[[], Iterator[Job]],
    keep: Callable[[Sequence[Done]], None],
    folder: RunFolder,
    parts: Parts,
) -> None:
    """Run jobs, keep finished ones and their usage in durable batches, note failures.

    ``pending``: how many items are left, and of how many. Nothing is started when nothing is left.
    """
    (left, total), listener = pending, parts.listener
    if not left:
        return
    if left < total:
        listener.say(f"resumed: {stage} {condition}: {total - left} of {total} are there already and stay")
    listener.stage(f"{stage} {condition}", left)
    batch: list[Done] = []
    usage: dict[str, Usage] = {}
    meter = Meter(folder, stage, condition)

    def flush() -> None:
        keep(batch)
        meter.note(usage)
        batch.clear()
        usage.clear()

    try:
        for result in parts.engine(role).run(jobs(), window=parts.spec(role).window):
            tally(usage, result.usage)
            if isinstance(result, Failure):
                failure = {"stage": stage, "condition": condition, "key": result.key, "reason": result.reason, "raw": mask(result.raw)}
                folder.lines("failures.jsonl").append([failure])
                listener.say(f"{stage} {condition}:{result.key}: {result.reason}; tried again by the next start")
            else:
                batch.append(result)
            if len(batch) >= BATCH:
                flush()
            listener.advance()
    finally:
        flush()
        listener.end()
