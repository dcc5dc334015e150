"""The embedded stack for planted faults: it remembers its answers, because most faults leave them as they are."""

from functools import cache

import numpy as np

from rlcheck import models
from rlcheck.engines import TransformersEngine
from rlcheck.trainers import TransformersTrainer

ANSWERS = {}


def remembered(method):
    """Answer a call on the same model, tokens and arguments from memory."""

    def call(self, first, *rest, **named):
        key = (method.__qualname__, id(self._lm), _frozen(first), *map(_frozen, rest), *map(_frozen, named.items()))
        if key not in ANSWERS:
            ANSWERS[key] = method(self, first, *rest, **named)
        return ANSWERS[key]

    return call


class Engine(TransformersEngine):
    sample = remembered(TransformersEngine.sample)
    score = remembered(TransformersEngine.score)
    distribution = remembered(TransformersEngine.distribution)


class Trainer(TransformersTrainer):
    logprobs = remembered(TransformersTrainer.logprobs)
    token_stats = remembered(TransformersTrainer.token_stats)
    distribution = remembered(TransformersTrainer.distribution)


@cache
def stack(dtype):
    """The healthy engine and trainer in a dtype."""
    engine, trainer = models.load_pair("embedded", (dtype, dtype))
    return Engine(engine, name="embedded"), Trainer(trainer, name="embedded")


def begin(seed, _current=[None]):  # noqa: B006
    """Forget the answers of another seed."""
    if _current != [seed]:
        _current[:] = [seed]
        ANSWERS.clear()


def _frozen(value):
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if hasattr(value, "response_ids"):
        return value.prompt_ids.tobytes(), value.offsets.tobytes(), value.response_ids.tobytes(), value.params
    return repr(value)
