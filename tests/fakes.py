"""A tiny stack in NumPy: every token is drawn from one categorical distribution, whatever came before."""

import numpy as np

from rlcheck.rollouts import Rollouts

VOCABULARY = 40
LOGITS = np.random.default_rng(7).normal(0, 1.2, VOCABULARY)


def log_policy(temperature):
    scaled = LOGITS / temperature
    return scaled - np.log(np.exp(scaled).sum())


class FakeEngine:
    """Honest sampling; ``name`` tells engines apart."""

    def __init__(self, name="fake", dtype="float32"):
        self.info = {"model": name, "dtype": dtype, "attention": "none", "device": "cpu"}
        self.calls = 0

    def sample(self, prompts, params):
        self.calls += 1
        generator = np.random.default_rng(params.seed)
        policy = log_policy(params.temperature)
        ids = generator.choice(VOCABULARY, size=(len(prompts), params.max_tokens), p=np.exp(policy))
        entropy = -(np.exp(policy) * policy).sum()
        return Rollouts.from_lists(
            prompts,
            ids,
            params=params,
            engine_logprobs=policy[ids].astype(np.float32),
            entropy=np.full(ids.shape, entropy, np.float32),
        )


class FakeTrainer:
    """Scores with the engine's policy, ``offset`` nats off."""

    def __init__(self, name="fake", dtype="float32", offset=0.0):
        self.info = {"model": name, "dtype": dtype, "attention": "none", "device": "cpu"}
        self.offset = offset

    def logprobs(self, rollouts, *, batch_size=None):
        policy = log_policy(rollouts.params.temperature) + self.offset
        return [policy[row].astype(np.float32) for row in rollouts.responses()]
