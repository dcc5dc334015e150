"""Stacks in NumPy and failing numbers for the tests of the diagnosis."""

import numpy as np
from fakes import VOCABULARY, FakeEngine, FakeTrainer, log_policy

from rlcheck.diagnosis import Case, diagnose
from rlcheck.measure import Measurement
from rlcheck.pairs import Pair
from rlcheck.rollouts import Rollouts, SamplingParams

PROMPTS = [[7, row, row + 1] for row in range(24)]


def failing(name, causes=(), value=1.0, variant=""):
    """A number beyond its threshold."""
    fields = {"low": None, "high": None, "level": None, "kind": "exact", "unit": "", "n": 10}
    return Measurement(name, variant, value, threshold="== 0", verdict="fail", causes=tuple(causes), **fields)


MEAN_ABS = failing("mismatch.mean_abs", ("stale_weights", "double_bos", "temperature", "shifted"))


def policies(prompts, temperature=1.0):
    """log-policy (B, V) of each prompt, in an order that its last token and length choose; alike at all positions."""
    orders = [np.random.default_rng([prompt[-1], len(prompt)]).permutation(VOCABULARY) for prompt in prompts]
    return log_policy(temperature)[np.stack(orders)]


class Engine(FakeEngine):
    """Draws from a policy that depends on the prompt; keeps the ``k`` likeliest tokens, or all."""

    def __init__(self, k=VOCABULARY, dtype="float32"):
        super().__init__("numpy", dtype)
        self.k = k

    def sample(self, prompts, params):
        generator = np.random.default_rng(params.seed)
        kept = policies(prompts, params.temperature)
        kept[kept < -np.sort(-kept, axis=1)[:, self.k - 1 : self.k]] = -np.inf
        kept -= np.log(np.exp(kept).sum(axis=1, keepdims=True))
        ids = np.stack([generator.choice(VOCABULARY, params.max_tokens, p=np.exp(row)) for row in kept])
        return Rollouts.from_lists(
            prompts, ids, params=params, engine_logprobs=np.take_along_axis(kept, ids, 1).astype(np.float32)
        )


class Trainer(FakeTrainer):
    """Scores with the policy of the prompt, ``offset`` nats off."""

    def __init__(self, offset=0.0, dtype="float32"):
        super().__init__("numpy", dtype, offset)

    def logprobs(self, rollouts, *, batch_size=None):
        policy = policies(rollouts.prompts(), rollouts.params.temperature) + self.offset
        return [row[ids].astype(np.float32) for row, ids in zip(policy, rollouts.responses(), strict=True)]

    def distribution(self, rollouts, positions):
        return policies(rollouts.prompts(), rollouts.params.temperature)[positions[:, 0]] + self.offset


def sampled(engine=None, seed=0, **params):
    """Rollouts of an engine on the prompts."""
    return (engine or Engine()).sample(PROMPTS, SamplingParams(max_tokens=32, seed=seed, **params))


def rewritten(rollouts, change, places=slice(None)):
    """Rollouts whose engine log-probs at some places are ``change`` of what they were."""
    logprobs = rollouts.engine_logprobs.copy()
    logprobs[places] = change(logprobs[places])
    return rollouts.replace(engine_logprobs=logprobs)


def case(rollouts, trainer=None, *numbers, numerics="float32", **fixtures):
    """A failing check on these rollouts beside the trainer's log-probs."""
    trainer = trainer or Trainer()
    pair = Pair.of(rollouts, trainer.logprobs(rollouts))
    parts = {"rlcheck_pairs": lambda k: pair, "rlcheck_trainer": trainer, "rlcheck_rollouts": rollouts, **fixtures}
    numbers = numbers or (MEAN_ABS,)
    return Case(numbers, numbers, parts.get, numerics)


def of_function(fixture, function, *names):
    """A failing check of a function."""
    numbers = [failing(name) for name in names]
    return Case(numbers, numbers, {fixture: function}.get, "float32")


def first(found):
    """The cause ranked first."""
    return diagnose(found)[0].cause
