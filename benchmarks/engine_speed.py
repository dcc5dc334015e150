"""Tokens per second of ``TransformersEngine`` against ``model.generate``, in one run, and peak memory.

Run it with ``python benchmarks/engine_speed.py [MODEL] [DTYPE]``; the default is the embedded model in float32.
The same prompts and lengths on both sides; ``generate`` returns its logits, the engine its log-probs.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from rlcheck import SamplingParams, models
from rlcheck.engines import TransformersEngine
from rlcheck.prompts import random_prompts

ROUNDS = 5
LENGTH = 64


def generate(model: Any, prompts: list[list[int]], length: int) -> Callable[[], Any]:
    """The same work by ``model.generate`` with ``output_logits``."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    options = {"min_new_tokens": length, "max_new_tokens": length, "do_sample": True, "top_k": 0, "use_cache": True}
    return lambda: model.generate(
        ids, attention_mask=mask, output_logits=True, return_dict_in_generate=True, pad_token_id=0, **options
    )


def seconds(work: Callable[[], Any]) -> float:
    """Process time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main(name: str = "embedded", dtype: str = "float32") -> None:
    """Print the ratio of speeds, turn about, and the engine's peak memory at two lengths."""
    torch.set_num_threads(1)
    model = models.load(name, dtype)
    prompts = random_prompts(model.config.vocab_size)
    engine = TransformersEngine(model)
    ours = lambda: engine.sample(prompts, SamplingParams(max_tokens=LENGTH, min_tokens=LENGTH, seed=1))  # noqa: E731
    theirs = generate(model, prompts, LENGTH)
    ratios = [seconds(theirs) / seconds(ours) for _ in range(ROUNDS)]
    print(f"engine / generate, tokens per second: {median(ratios):.2f} (of {[round(r, 2) for r in ratios]})")
    for length in (32, 256):
        engine.sample(prompts, SamplingParams(max_tokens=length, seed=1))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        full = len(prompts) * length * model.config.vocab_size * 4 / 2**20
        print(f"{length} tokens: peak {peak:.0f} MiB so far; all logits would be {full:.0f} MiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
