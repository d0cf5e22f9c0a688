"""Make the result tables of README.md and bench/README.md from the JSON in bench/results: python bench/tables.py.

``--sample RUN`` first copies the numbers of a demo run (its report.json) into bench/results/sample.json.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
START, END = "<!-- results -->", "<!-- end of results -->"
RECALL, RECALL_END = "<!-- recall -->", "<!-- end of recall -->"


def kept(name: str) -> dict[str, Any]:
    """The kept result ``name``."""
    found: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def percent(value: float) -> str:
    """A share as per cent."""
    return f"{100 * value:.0f} %"


def of(row: dict[str, Any]) -> str:
    """``12 of 12 (76 % to 100 %)``."""
    return f"{row['hit']} of {row['n']} ({percent(row['wilson_95'][0])} to {percent(row['wilson_95'][1])})"


def writing_lines() -> list[str]:
    """Gate and writer by kind of session."""
    result = kept("writing")
    scenes, details = result["scenes"], result["details"]
    prompt, cached, written = (result["tokens_a_session"][f"{name}_tokens"] for name in ("prompt", "cached", "completion"))
    lost = ", ".join(f"{details[name]['hit']} of {details[name]['n']} {name}" for name in ("numbers", "names", "dates") if name in details)
    parts = ", ".join(f"{scenes[f'with_{name}'][0]} of {scenes[f'with_{name}'][1]} {name}" for name in ("details", "time", "context"))
    return [
        *(f"| gate, {kind} sessions kept | {of(row)} |" for kind, row in result["kinds"].items()),
        f"| components whose numbers, names and most words the user said | {of(result['supported'])} |",
        f"| details of the evidence turns that are in a component | {of(details)}: {lost} |",
        f"| memories with a scene | {scenes['with_scene']} of {scenes['memories']}; of these with {parts} |",
        f"| tokens a session | {prompt:.0f} prompt ({cached:.0f} of them cached), {written:.0f} written |",
    ]


def ways_lines() -> list[str]:
    """The two gate ways on the same sessions."""
    result = kept("ways")
    way = {name: ", ".join(f"{k} {r['hit']} of {r['n']}" for k, r in result[name]["kinds"].items()) for name in ("scored", "facts-first")}
    agreement = result["agreement"]
    kappa = agreement["kappa"]
    return [
        *(f"| gate way {name}, kept | {told} |" for name, told in way.items()),
        f"| the two ways decide alike | {of(agreement['same_decision'])}, kappa {'not defined' if kappa is None else f'{kappa:.2f}'} |",
    ]


def judge_lines() -> list[str]:
    """Agreement of the judge."""
    result = kept("calibration")
    whole = next(row for row in result["rows"] if row["kind"] == "overall")
    share, kind, strict = whole["agreement"], whole["table"]["only_second"], whole["table"]["only_first"]
    agreed = of({"hit": round(share["value"] * share["n"]), "n": share["n"], "wilson_95": [share["low"], share["high"]]})
    return [
        f"| judge agrees with {', '.join(result['labelled_by'])} | {agreed}, kappa {whole['kappa']:.2f} |",
        f"| of those that differ | {kind} too kind, {strict} too strict |",
    ]


def sample_lines() -> list[str]:
    """The shipped sample under each condition."""
    result = kept("sample")
    rows = [
        f"| sample, {row['condition']}: right of judged | {row['correct']} of {row['scored']} "
        f"({percent(row['low'])} to {percent(row['high'])}) |"
        for row in result["rows"]
    ]
    return [*rows, f"| sample, whole demo on 2 CPU cores | {result['seconds']:.0f} s |"]


def table() -> str:
    """All results as one table, with what they hold for."""
    model = kept("writing")["model"]
    measured_ways = ways_lines() if (HERE / "results" / "ways.json").exists() else []
    sample_note = f" ({told})" if (told := kept("sample").get("note")) else ""
    data = ", ".join([*kept("writing")["data"], kept("calibration")["labels"]])
    lines = ["| measured | result, 95 % interval |", "|---|---|", *writing_lines(), *measured_ways, *judge_lines(), *sample_lines()]
    note = (
        f"All with {model} on a CPU, one run, temperature 0. "
        f"Gate, writer and judge: `development` rows (prompts were chosen on them) of {data}. "
        "Sample: 12 invented questions, official protocol, judged by the same model; "
        f"they show that the machinery works, no more{sample_note}. "
        "Nothing here can be set beside the paper's 73.7 %, which is another model, judge, protocol and data set."
    )
    return f"{note}\n\n" + "\n".join(lines)


def recall_table() -> str:
    """What is found, by the bench of retrieval; what it is worth, by that of answers; dates; speed. What was not measured has no row."""
    parts = [retrieval_table(), answers_table(), "\n".join(line for line in (dates_line(), speed_line()) if line)]
    return "\n\n".join(part for part in parts if part)


def there(name: str) -> bool:
    """Whether a result was kept."""
    return (HERE / "results" / f"{name}.json").exists()


def retrieval_table() -> str:
    """Any and all evidence, tokens and milliseconds by way and number of hits."""
    if not there("retrieval"):
        return ""
    result = kept("retrieval")
    lines = ["| file, hits | way | any evidence | all evidence | tokens | ms |", "|---|---|---|---|---|---|"]
    for name, data in result["data"].items():
        lines += [
            f"| {name}, {r['first']} | {r['way']} | {of(r['any'])} | {of(r['all'])} | {r['tokens']} | {r['milliseconds']} |"
            for r in sorted(data["rows"], key=lambda r: r["first"])
        ]
    return f"Found, `development` rows, {result['embedder']}, tokens of {result['tokens_of']}:\n\n" + "\n".join(lines)


def answers_table() -> str:
    """Right answers by condition, and where the wrong ones were lost; by kind they are in the kept result."""
    if not there("answers"):
        return ""
    result = kept("answers")
    label = "`development` rows, " if result["development"] else ""
    lines = [
        "| file | condition | right | tokens | not kept | not found | misread | made up |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, data in result["data"].items():
        for r in (r for r in data["rows"] if r["kind"] == "overall"):
            right = of({"hit": r["right"], "n": r["scored"], "wilson_95": r["wilson_95"]})
            lost = " | ".join(str(r[why]) for why in ("not kept", "not found", "misread", "made up"))
            lines.append(f"| {name} | {r['condition']} | {right} | {r['context_tokens']} | {lost} |")
    return f"Answered, {label}read by {result['models']['read']}, judged by {result['models']['judge']}:\n\n" + "\n".join(lines)


def dates_line() -> str:
    """Spoken dates."""
    if not there("dates"):
        return ""
    parts = kept("dates")["parts"]
    shown, held = (of(parts[name]) for name in ("shown", "held"))
    return f"Spoken dates, times in questions and distances right: {shown} of those that rules were made on, {held} held back."


def speed_line() -> str:
    """A search beside a scan."""
    if not there("speed"):
        return ""
    r = kept("speed")
    beside = f"{r['times_the_scan']} times a numpy scan of the same vectors ({r['scan_ms']} ms)"
    others = f"The first one of a process takes {r['first_search_ms']} ms; ranked in memory {r['in_memory_ms']} ms, once the keys are read"
    return f"Search over {r['memories']:,} memories: {r['search_ms']} ms, {beside}. {others} ({r['reading_keys_ms']} ms)."


def main() -> None:
    """Copy a demo's numbers if asked to, then renew both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=Path, help="a run folder of the demo")
    args = parser.parse_args()
    if args.sample:
        report = json.loads((args.sample / "report" / "report.json").read_text(encoding="utf-8"))
        rows = [
            {k: row[k] for k in ("condition", "correct", "scored", "n")} | {"low": row["judged"]["low"], "high": row["judged"]["high"]}
            for row in report["rows"]
            if row["kind"] == "overall"
        ]
        seconds = sum(report["header"]["seconds"].values())
        kept_sample = {"header": report["header"], "rows": rows, "seconds": seconds}
        (HERE / "results" / "sample.json").write_text(json.dumps(kept_sample, indent=1) + "\n", encoding="utf-8")
    for path in (HERE / "README.md", HERE.parent / "README.md"):
        text = path.read_text(encoding="utf-8")
        made = re.sub(f"{START}.*{END}", lambda _: f"{START}\n{table()}\n{END}", text, flags=re.DOTALL)
        made = re.sub(f"{RECALL}.*{RECALL_END}", lambda _: f"{RECALL}\n{recall_table()}\n{RECALL_END}", made, flags=re.DOTALL)
        path.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
