"""How far healthy numerics are apart on a model: engine against trainer, and each against itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck import mismatch, models
from rlcheck.engines import TransformersEngine
from rlcheck.prompts import random_prompts, text_prompts
from rlcheck.rollouts import Rollouts, SamplingParams
from rlcheck.tables import markdown
from rlcheck.trainers import TransformersTrainer

Array = npt.NDArray[Any]
DTYPES = ("bfloat16", "float32")
BATCHES = (1, 10)
ROW_TOKENS = 32
HEADER = ["comparison", "mean abs", "median", "p99", "max", "sequence ratio", "exactly equal", "n"]
BINS = ["p<0.1", "0.1<=p<0.5", "0.5<=p<0.9", "p>=0.9"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Log-probs ``first`` and ``second`` (N,) of the tokens of ``rollouts``; by probability of ``first``."""

    name: str
    rollouts: Rollouts
    first: Array
    second: Array

    def cells(self) -> list[str]:
        """One row of the table, in nats."""
        found = mismatch.compare(self.first, self.second, self.rollouts.offsets)
        sizes = (found.mean_abs, found.median_abs, found.p99_abs, found.max_abs)
        ratios = f"{found.min_sequence_ratio:.4g} to {found.max_sequence_ratio:.4g}"
        return [self.name, *(f"{size:.2g}" for size in sizes), ratios, f"{self.equal:.0%}", str(found.n)]

    def by_probability(self) -> list[str]:
        """Mean absolute difference by the probability of the token."""
        parts = mismatch.breakdown(self.second.astype(np.float64) - self.first, mismatch.by_probability(self.first))
        return [self.name, *(f"{parts[name].mean_abs:.2g}" for name in BINS)]

    @property
    def equal(self) -> float:
        """Share of tokens whose log-probs are equal to the last bit."""
        return float((self.first == self.second).mean())


class Bench:
    """The stack in one dtype: its engine, its trainer, and one batch of samples."""

    def __init__(
        self, model: str, dtypes: tuple[str, str], rows: int, attention: str = "sdpa", fp32_head: bool = False
    ):
        first, second = models.load_pair(model, dtypes, attention=attention)
        self.engine = TransformersEngine(first, fp32_head=fp32_head)
        self.trainer = TransformersTrainer(second, fp32_head=fp32_head)
        tokenizer = models.tokenizer(model)
        prompts = text_prompts(tokenizer) if tokenizer else random_prompts(self.engine.model.config.vocab_size)
        self.prompts = [prompts[row % len(prompts)] for row in range(rows)]

    def sample(self, batch: int | None = None) -> Rollouts:
        """Rows of ``ROW_TOKENS`` tokens, decoded ``batch`` at a time (all at once without it)."""
        size = batch or len(self.prompts)
        starts = range(0, len(self.prompts), size)
        params = [SamplingParams(seed=start, max_tokens=ROW_TOKENS) for start in starts]
        parts = [self.engine.sample(self.prompts[s : s + size], p) for s, p in zip(starts, params, strict=True)]
        return Rollouts.concatenate([part.replace(params=params[0]) for part in parts])

    @cached_property
    def rollouts(self) -> Rollouts:
        """All rows, decoded in one batch."""
        return self.sample()

    def scores(self, **how: Any) -> Array:
        """The trainer's log-probs (N,) of the samples."""
        return np.concatenate(self.trainer.logprobs(self.rollouts, **{"batch_size": len(self.prompts), **how}))


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables, a line each as soon as it is measured."""
    options = _parser().parse_args(argv)
    found = []
    for comparison in comparisons(options.model, options.dtypes, options.rows):
        found.append(comparison)
        print("  ".join(comparison.cells()), flush=True)
    print("\n" + markdown(HEADER, [comparison.cells() for comparison in found]))
    print("\nMean absolute difference by the probability that the first of the two gives the token:\n")
    print(markdown(["comparison", *BINS], [comparison.by_probability() for comparison in found]))
    return 0


def comparisons(model: str, dtypes: Sequence[str], rows: int) -> Iterator[Comparison]:
    """Every comparison of the table, in nats, as it is measured."""
    for dtype in dtypes:
        yield from within(model, dtype, rows)
    if len(dtypes) > 1:
        yield from across(model, (dtypes[0], dtypes[1]), rows)
    if "bfloat16" in dtypes:
        yield agreement(
            "bfloat16 body, float32 head and log-softmax, both", Bench(model, _both("bfloat16"), rows, fp32_head=True)
        )


def within(model: str, dtype: str, rows: int) -> Iterator[Comparison]:
    """One dtype on both sides: engine against trainer, then every other path against the same trainer's batch."""
    bench = Bench(model, _both(dtype), rows)
    yield agreement(f"{dtype} engine, decoded at B={rows}, and trainer", bench)
    for batch in BATCHES:
        yield decoded(f"{dtype} engine, decoded at B={batch}, and trainer", bench, batch)
    padded = bench.scores()

    def against(what: str, other: Array) -> Comparison:
        return Comparison(f"{dtype} {what}", bench.rollouts, padded, other)

    yield against(f"trainer B={rows} and B=1", bench.scores(batch_size=1))
    yield against("trainer padded right and left", bench.scores(layout="left"))
    yield against("trainer padded and packed", bench.scores(layout="packed"))
    yield against("trainer sdpa and eager", _eager(model, dtype, bench))
    prefill = np.concatenate(bench.engine.score(bench.rollouts))
    yield Comparison(f"{dtype} engine, decode and prefill", bench.rollouts, bench.rollouts.engine_logprobs, prefill)
    yield cached(dtype, bench)


def across(model: str, dtypes: tuple[str, str], rows: int) -> Iterator[Comparison]:
    """Different dtypes on the two sides."""
    for engine, trainer in (dtypes, dtypes[::-1]):
        yield agreement(f"{engine} engine and {trainer} trainer", Bench(model, (engine, trainer), rows))


def agreement(name: str, bench: Bench) -> Comparison:
    """The engine against the trainer."""
    return Comparison(name, bench.rollouts, bench.rollouts.engine_logprobs, bench.scores())


def decoded(name: str, bench: Bench, batch: int) -> Comparison:
    """The engine, sampling so many rows at a time, against the trainer."""
    rollouts = bench.sample(batch)
    scores = np.concatenate(bench.trainer.logprobs(rollouts, batch_size=len(rollouts)))
    return Comparison(name, rollouts, rollouts.engine_logprobs, scores)


def cached(dtype: str, bench: Bench) -> Comparison:
    """The engine's samples from fresh prompts against those from cached ones, as far as the tokens are the same."""
    from rlcheck.invariance import common_start

    bench.engine.reset_prefix_cache()
    miss, hit = bench.sample(), bench.sample()
    alike = common_start(miss, hit)
    second = np.full(miss.n_tokens, np.nan, np.float32)
    second[alike] = hit.engine_logprobs[common_start(hit, miss)]
    return Comparison(f"{dtype} engine, prefix-cache miss and hit", miss, miss.engine_logprobs, second)


def _eager(model: str, dtype: str, bench: Bench) -> Array:
    eager = TransformersTrainer(models.load(model, dtype, attention="eager"))
    return np.concatenate(eager.logprobs(bench.rollouts, batch_size=len(bench.prompts)))


def _both(dtype: str) -> tuple[str, str]:
    return dtype, dtype


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rlcheck.tables numerics", description=__doc__)
    parser.add_argument("--model", default=models.EMBEDDED, help="as for --rlcheck-model")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=(*DTYPES, "float16"))
    parser.add_argument("--rows", type=int, default=30, help=f"rows of {ROW_TOKENS} tokens")
    return parser
