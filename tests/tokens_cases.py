"""A stack in memory for the checks of ids: samples, pairs, and what each check measures on them."""

import importlib
from functools import cache

import pytest

from rlcheck import Rollouts, SamplingParams
from rlcheck.blocks import pair_block, sample_block
from rlcheck.measure import Recorder
from rlcheck.prompts import random_prompts
from rlcheck.settings import Settings
from rlcheck.thresholds import Thresholds

checks = importlib.import_module("rlcheck.checks.contract_tokens")
CHECKS = [name.removeprefix("check_") for name in checks.__all__]


class Stack:
    """What the checks ask for, on one engine and one trainer, as the fixtures would give it."""

    def __init__(
        self, engine=None, trainer=None, seed=0, rollouts=None, tokenizer=None, chat=None, declared=None, size=960
    ):
        self.engine, self.trainer, self.seed = engine, trainer, seed
        self.recorded = rollouts is not None
        self.prompts = random_prompts(int(getattr(engine, "info", {}).get("vocabulary", 40)))
        self.blocks = cache(lambda k: rollouts if self.recorded else sample_block(engine, self.prompts, size, seed, k))
        self.pairs = cache(lambda k: pair_block(self.blocks(k), trainer, self.recorded))
        self.tokenizer, self.chat, self.declared = tokenizer, chat, declared or {}

    def arguments(self, recorder):
        return {
            "rlcheck_sampler": None if self.recorded else self.engine,
            "rlcheck_trainer": self.trainer,
            "rlcheck_prompts": self.prompts,
            "rlcheck_rollouts": self.blocks(0),
            "rlcheck_trainer_rows": self.blocks(0),
            "rlcheck_sample_blocks": self.blocks,
            "rlcheck_pairs": self.pairs,
            "rlcheck_tokenizer": self.tokenizer,
            "rlcheck_chat": self.chat,
            "rlcheck_settings": Settings(seed=self.seed),
            "rlcheck_declarations": self.declared,
            "rlcheck_observe": lambda rollouts, scorer, alone=False: None,
            "rlcheck_measure": recorder,
            "request": self,
        }

    def getfixturevalue(self, name):
        assert name == "rlcheck_pairs"
        return self.pairs

    def run(self, check, numerics="float32"):
        """Run one check by the name without its ``check_``; returns its recorder, or None where it skips."""
        function = getattr(checks, f"check_{check}")
        recorder = Recorder(Thresholds(), numerics)
        arguments = self.arguments(recorder)
        try:
            function(**{name: arguments[name] for name in function.__annotations__ if name != "return"})
        except pytest.skip.Exception:
            assert not recorder.having("fail")
            return None
        assert not recorder.errors
        return recorder

    def failing(self, names=CHECKS, numerics="float32"):
        """Yield the names of the numbers that fail, with the causes they point to, check by check."""
        for recorder in (self.run(name, numerics) for name in names):
            for measurement in recorder.having("fail") if recorder else ():
                yield measurement.name.removeprefix("contract."), measurement.causes


def value(recorder, name, variant=""):
    [found] = [m for m in recorder.measurements if (m.name, m.variant) == (f"contract.{name}", variant)]
    return found.value


def recorded(responses, prompts=None, eos=(2,), **columns):
    """Rollouts of given ids, with log-probs of -1 on every token."""
    prompts = prompts or [[1, 5 + row] for row in range(len(responses))]
    params = SamplingParams(eos_token_ids=eos)
    logprobs = [[-1.0] * len(row) for row in responses]
    return Rollouts.from_lists(prompts, responses, params=params, engine_logprobs=logprobs, **columns)
