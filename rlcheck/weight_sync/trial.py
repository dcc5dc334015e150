"""One trial: move the trainer's weights by a large known step, push, look, twice; then put everything back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from rlcheck.blocks import params
from rlcheck.invariance import spread
from rlcheck.pairs import Pair
from rlcheck.protocols import batch_multiple
from rlcheck.rollouts import Rollouts
from rlcheck.thresholds.weight_sync import agreement
from rlcheck.weight_sync.stage import Marks, Stage, State, mean_abs, step

Prompts = list[list[int]]

SCALES = (0.1, 0.2, 0.4, 0.8)
"""Moves to try, smallest first, in a tensor's own standard deviation; .1 moves a dense model by 1 to 2 nats."""
STEP = 0.5
"""Nats by which log-probs must move; much more would only make rounding errors grow."""
PUSHES = ("first", "second")
BEFORE = "before"
APART = "engine and trainer disagree before any push: see mismatch::check_engine_and_trainer_agree"
SEEN_ROWS = 4
FRESH_ROWS = 6
CONTEXT = 128
"""Contexts are cut to so many tokens."""
TOKENS = 6
TELLING = 2.0
"""The step must be larger than so many times the threshold of agreement."""
FIRST_BLOCK = 1000
"""Seeds beyond those of the blocks that other checks sample."""


@dataclass(frozen=True, eq=False)
class Trial:
    """What was seen: before any push, after each, after a wake-up ("woken", if the engine sleeps), "restored"."""

    baseline: Pair
    start: State
    scale: float
    stages: dict[str, Stage]

    @property
    def comparable(self) -> bool:
        """Whether every stage has tokens with a log-prob on both sides."""
        return all(pair.valid.any() for pair in (self.baseline, *(stage.fresh for stage in self.stages.values())))

    @property
    def step(self) -> float:
        """Mean |change| in nats that the smaller of the two moves made to the trainer's log-probs."""
        return min(step(self.stages[name].fresh, self.stages[name].others[BEFORE]) for name in PUSHES)

    def tells(self, numerics: str) -> bool:
        """Whether the step is so large that an engine left behind cannot pass for one that followed."""
        return self.step > TELLING * agreement(numerics)

    def agrees(self, pair: Pair, numerics: str, where: Marks | None = None) -> bool:
        """Whether engine and trainer agree up to their numerics, on the valid tokens ``where`` marks."""
        return mean_abs(pair, where) <= agreement(numerics)

    def unjudged(self, numerics: str) -> str:
        """Why agreement after a push is not judged: it was not there before; empty where it was."""
        return "" if self.agrees(self.baseline, numerics) else APART


def run_trial(engine: Any, trainer: Any, sync: Callable[[], None], rollouts: Rollouts, seed: int) -> Trial:
    """Perturb, push and sample twice, restore and push once more; prompts are made of ``rollouts``.

    Weights are put back and pushed whatever happens in between. Raises what the parts raise.
    """
    look = _Look(engine, trainer, contexts(rollouts), seed)
    baseline, start = look.baseline(), State.of(engine, trainer)
    scale = _scale(look, baseline)
    stages: dict[str, Stage] = {}
    with _restoring(trainer, sync):
        for number, name in enumerate(PUSHES, 1):
            if stages:
                trainer.restore()
            trainer.perturb(scale, seed + number)
            sync()
            stages[name] = look.after_push(number)
        if hasattr(engine, "release") and hasattr(engine, "acquire"):
            engine.release()
            engine.acquire()
            stages["woken"] = look.fresh_only(3)
        trainer.restore()
        look.add_others(stages, stages, BEFORE)
        trainer.perturb(scale, seed + 1)  # the weights of the first push once more, for the trainer alone
        look.add_others(stages, stages.keys() - {"first"}, "first")
    return Trial(baseline, start, scale, {**stages, "restored": look.fresh_only(4)})


def contexts(rollouts: Rollouts) -> Prompts:
    """Return a few prompts with their responses, long enough to fill blocks of a prefix cache."""
    few = rollouts.select(spread(len(rollouts), SEEN_ROWS))
    return [(prompt + row)[:CONTEXT] for prompt, row in zip(few.prompts(), few.responses(), strict=True)]


def _scale(look: _Look, baseline: Pair) -> float:
    """Return the smallest move of the weights that moves log-probs enough to tell, or the largest there is."""
    for scale in SCALES:
        look.trainer.perturb(scale, look.seed + 1)
        try:
            [moved] = look.pairs([baseline.rollouts])
        finally:
            look.trainer.restore()
        if step(baseline, moved.old_logprobs) >= STEP:
            break
    return scale


@dataclass(frozen=True)
class _Look:
    """Samples from the engine and scores with the trainer."""

    engine: Any
    trainer: Any
    seen: Prompts
    seed: int

    def baseline(self) -> Pair:
        [pair] = self.pairs([self.sample(self.seen, 0)])
        return pair

    def after_push(self, number: int) -> Stage:
        cached = self.sample(self.seen, number)  # at once: caches may hold the last prompts only
        fresh = self.sample(self.unseen(number), number)
        if hasattr(self.engine, "reset_prefix_cache"):
            self.engine.reset_prefix_cache()
        again = [self.sample(self.seen, number)] if number < len(PUSHES) else []  # and caches hold them once more
        return self.stage([fresh, cached, *again])

    def fresh_only(self, number: int) -> Stage:
        return self.stage([self.sample(self.unseen(number), number)])

    def stage(self, samples: list[Rollouts]) -> Stage:
        fresh = samples[0]
        pairs = dict(zip(("fresh", "cached", "again"), self.pairs(samples), strict=False))
        base = self.trainer.base_logprobs(fresh) if hasattr(self.trainer, "base_logprobs") else None
        others = {} if base is None else {"base": np.concatenate(base)}
        return Stage(State.of(self.engine, self.trainer), **pairs, others=others)

    def add_others(self, stages: dict[str, Stage], names: Iterable[str], other: str) -> None:
        """Score the fresh samples of some stages with the weights that the trainer holds now."""
        chosen = sorted(names)
        scored = self.pairs([stages[name].fresh.rollouts for name in chosen])
        for name, pair in zip(chosen, scored, strict=True):
            stages[name].others[other] = pair.old_logprobs

    def sample(self, prompts: Prompts, number: int) -> Rollouts:
        asked = params(self.engine, self.seed, FIRST_BLOCK + number).replace(max_tokens=TOKENS)
        rollouts: Rollouts = self.engine.sample(prompts, asked)
        return rollouts

    def pairs(self, parts: Sequence[Rollouts]) -> list[Pair]:
        """Score several samples by one call, filled up to a multiple of what the trainer takes."""
        joined = Rollouts.concatenate(list(parts))
        filled = np.arange(-(-len(joined) // self.multiple) * self.multiple) % len(joined)
        rows = self.trainer.logprobs(joined.select(filled))
        starts = np.cumsum([0, *map(len, parts)])
        return [Pair.of(part, rows[start : start + len(part)]) for part, start in zip(parts, starts, strict=False)]

    @property
    def multiple(self) -> int:
        return batch_multiple(self.trainer)

    def unseen(self, number: int) -> Prompts:
        """Prompts of rising lengths that no cache can know, not even in part: shuffled tokens."""
        generator = np.random.default_rng([self.seed, number])
        pool = np.array(list(chain.from_iterable(self.seen)))
        longest = max(map(len, self.seen))
        lengths = [max(2, longest * row // FRESH_ROWS) for row in range(1, FRESH_ROWS + 1)]
        return [generator.choice(pool, length).tolist() for length in lengths]


@contextmanager
def _restoring(trainer: Any, sync: Callable[[], None]) -> Iterator[None]:
    """Put the trainer's weights back and push them, after an error too (which then wins)."""
    try:
        yield
    except BaseException:
        for undo in (trainer.restore, sync):
            with suppress(Exception):
                undo()
        raise
    trainer.restore()
    sync()
