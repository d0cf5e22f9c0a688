"""A GGUF file as a folder of bf16 safetensors.

The work runs in a child process: torch and six gigabytes of memory are gone when it ends, its progress bars stay out of the
caller's output, and a crash in a native library becomes an ordinary error.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dualtrace_local.config import prepare_environment
from dualtrace_local.errors import WeightsError

CHILD = f"import sys; from {__name__} import convert; convert(*sys.argv[1:])"


def convert_apart(gguf: Path, folder: Path) -> None:
    """Run ``convert`` in a child process, with this package importable wherever it lies."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(gguf.absolute()), str(folder.absolute())],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        reason = said[-1] if said else f"exit status {done.returncode}; is there enough memory?"
        msg = f"{gguf.name} cannot be converted: {reason} (the extras cpu and gpu of this package bring what conversion needs)"
        raise WeightsError(msg)


def convert(gguf: str, folder: str) -> None:
    """Write the model of a GGUF file into ``folder`` as bf16 safetensors with its tokenizer and chat template.

    vLLM cannot run a quantised GGUF file on a CPU, so the weights are de-quantised once. Raises WeightsError when the saved
    tokenizer does not carry the chat template of the file: every prompt would be wrong.
    """
    prepare_environment(cpu=False)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source, file = str(Path(gguf).parent), Path(gguf).name
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    # Left in, they would make save_pretrained write a quantised config, which vLLM then refuses.
    vars(model).pop("hf_quantizer", None)
    vars(model.config).pop("quantization_config", None)
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file)
    tokenizer.save_pretrained(folder)
    if not tokenizer.chat_template or AutoTokenizer.from_pretrained(folder).chat_template != tokenizer.chat_template:
        msg = f"{file} has no chat template, or it was lost in saving"
        raise WeightsError(msg)
