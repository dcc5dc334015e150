"""A row's log-probs and its company: planted faults fail, healthy stacks pass, every comparison sees a difference."""

import importlib
from functools import cache

import numpy as np
import pytest
import torch
from fakes import FakeEngine, FakeTrainer

from rlcheck import RlcheckError, Rollouts, SamplingParams, models
from rlcheck.engines import TransformersEngine
from rlcheck.faults import FAULTS, batch
from rlcheck.invariance import Alone, Comparer, Difference, bits, common_start, replace_rows, spread
from rlcheck.measure import Recorder
from rlcheck.prompts import random_prompts
from rlcheck.settings import Settings
from rlcheck.thresholds import Thresholds
from rlcheck.trainers import TransformersTrainer

checks = importlib.import_module("rlcheck.checks.check_batch_invariance")
PROMPTS = random_prompts(40)[:8]
TRAINER = ("micro_batch_size", "neighbours", "padding", "packed", "training")


def measured(check, part, rollouts, bitwise=False, numerics="float32", seed=0):
    """Run one check of a part, found by the start of its name; return its recorder."""
    [run] = [value for name, value in vars(checks).items() if name.startswith(f"check_{check}")]
    recorder = Recorder(Thresholds(), numerics)
    arguments = {
        **dict.fromkeys(("rlcheck_trainer", "rlcheck_engine"), part),
        **dict.fromkeys(("rlcheck_trainer_rows", "rlcheck_engine_rows"), rollouts),
        "rlcheck_trainer_alone": cache(lambda: Alone.score(rollouts, lambda few: part.logprobs(few, batch_size=1))),
        "rlcheck_compare": Comparer(recorder, bitwise),
        "rlcheck_measure": recorder,
        "rlcheck_settings": Settings(seed=seed),
    }
    run(**{name: arguments[name] for name in run.__annotations__ if name != "return"})
    return recorder


def causes(recorder):
    return {cause for measurement in recorder.having("fail") for cause in measurement.causes}


# -- real models -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stack():
    """(trainer, samples) by model, in float32."""

    @cache
    def get(name):
        engine, trainer = models.load_pair(name, ("float32", "float32"))
        rollouts = TransformersEngine(engine).sample(random_prompts(512)[:8], SamplingParams(seed=0, max_tokens=12))
        return TransformersTrainer(trainer, name=name), rollouts

    return get


@pytest.mark.parametrize("name", ["embedded", "embedded-absolute"])
def test_a_healthy_trainer_passes(stack, name):
    trainer, rollouts = stack(name)
    for check in TRAINER:
        if (name, check) != ("embedded-absolute", "packed"):  # transformers packs no model with absolute positions
            assert not measured(check, trainer, rollouts).having("fail")


@pytest.mark.parametrize("name", ["no_position_ids", "positions_count_pads"])
def test_a_model_with_relative_positions_does_not_mind_shifted_ones(stack, name):
    trainer, rollouts = stack("embedded")
    broken = FAULTS[name].plant(trainer, np.random.default_rng(0))
    assert not measured("padding", broken, rollouts).having("fail")


def test_the_loss_forward_of_our_trainer_records_gradients(stack):
    trainer, rollouts = stack("embedded-absolute")
    seen = []
    hook = trainer.model.lm_head.register_forward_hook(lambda *io: seen.append(io[2].requires_grad))
    trainer.training_logprobs(rollouts)
    trainer.logprobs(rollouts)
    hook.remove()
    assert seen == [True, False]
    assert torch.is_grad_enabled()


# -- negative controls: each comparison sees a difference ----------------------------------------------


class Wobbly(FakeTrainer):
    """Answers honestly, but moves one token of its last row by ``by`` when ``when(**call)`` holds."""

    def __init__(self, when, by):
        super().__init__()
        self.when, self.by = when, by
        self.known = None

    def logprobs(self, rollouts, *, batch_size=None, layout="right"):
        rows = super().logprobs(rollouts)
        self.known = rollouts if self.known is None else self.known
        same = len(rollouts) == len(self.known) and np.array_equal(rollouts.prompt_ids, self.known.prompt_ids)
        if self.when(batch_size=batch_size, layout=layout, same=same):
            rows = [nudged(row, self.by) for row in rows]
        return rows

    def training_logprobs(self, rollouts):
        return [nudged(row, self.by) for row in super().logprobs(rollouts)]


def nudged(row, by):
    """The row with its third token moved by ``by`` nats, or by one bit."""
    row = row.copy()
    row[2] = np.nextafter(row[2], np.float32(-np.inf)) if by == "bit" else row[2] - by
    return row


CONTROLS = {
    "micro_batch_size": (lambda *, batch_size, **_: batch_size == 4, {"B=4"}),
    "neighbours": (lambda *, same, **_: not same, {"shuffled", "replaced"}),
    "padding": (lambda *, layout, **_: layout == "left", {"left"}),
    "packed": (lambda *, layout, **_: layout == "packed", {"packed"}),
    "training": (lambda **_: False, {""}),
}


@pytest.mark.parametrize("check", CONTROLS)
def test_each_comparison_of_the_trainer_sees_its_difference_and_no_other(check):
    when, variants = CONTROLS[check]
    rollouts = FakeEngine().sample(PROMPTS, SamplingParams(seed=1))
    assert not measured(check, Wobbly(when, 1e-5), rollouts).having("fail")
    failing = measured(check, Wobbly(when, 0.05), rollouts)
    assert {m.variant for m in failing.having("fail")} == variants
    assert {m.name.rsplit("_", 2)[1] for m in failing.having("fail")} <= {"mean", "rows"}
    bitwise = measured(check, Wobbly(when, "bit"), rollouts, bitwise=True)
    assert {m.variant for m in bitwise.having("fail")} == variants
    assert all(m.name.endswith("_unequal") for m in bitwise.having("fail"))


def test_a_difference_in_bfloat16_must_exceed_its_numerics():
    rollouts = FakeEngine().sample(PROMPTS, SamplingParams(seed=1))
    when = CONTROLS["micro_batch_size"][0]
    assert not measured("micro_batch_size", Wobbly(when, 0.3), rollouts, numerics="bfloat16").having("fail")
    far = measured("micro_batch_size", Wobbly(when, 15), rollouts, numerics="bfloat16")
    assert {m.name for m in far.having("fail")} >= {"batch_invariance.micro_batch_rows_apart"}


class WobblyEngine(FakeEngine):
    """Scores and caches; ``at`` names the path whose third token is moved."""

    def __init__(self, at, by):
        super().__init__()
        self.at, self.by, self.cached = at, by, False
        self.scorer = FakeTrainer()

    def score(self, rollouts):
        rows = self.scorer.logprobs(rollouts)
        moved = {"batch": len(rows) > 1, "decode": True}.get(self.at, False)
        return [nudged(row, self.by) for row in rows] if moved else rows

    def reset_prefix_cache(self):
        self.cached = False

    def sample(self, prompts, params):
        rollouts = super().sample(prompts, params)
        if self.at == "cache" and self.cached:
            rows = [nudged(row, self.by) for row in rollouts.split(rollouts.engine_logprobs)]
            rollouts = rollouts.replace(engine_logprobs=np.concatenate(rows))
        self.cached = True
        return rollouts


@pytest.mark.parametrize(("check", "at"), [("engine_batch", "batch"), ("decode", "decode"), ("prefix_cache", "cache")])
def test_each_comparison_of_the_engine_sees_its_difference(check, at):
    rollouts = FakeEngine().sample(PROMPTS, SamplingParams(seed=1))
    for by, bitwise, fails in ((1e-5, False, False), (0.05, False, True), ("bit", False, False), ("bit", True, True)):
        recorder = measured(check, WobblyEngine(at, by), rollouts, bitwise)
        assert bool(recorder.having("fail")) == fails, (by, bitwise)
    assert not measured(check, WobblyEngine("nowhere", 0.05), rollouts, True).having("fail")


def test_tokens_drawn_differently_after_a_cache_hit_are_not_compared():
    class Drifting(WobblyEngine):
        def sample(self, prompts, params):
            hit, rollouts = self.cached, super().sample(prompts, params)
            moved = (rollouts.response_ids + (rollouts.positions == 5) * hit) % 40
            return rollouts.replace(response_ids=moved)

    rollouts = FakeEngine().sample(PROMPTS, SamplingParams(seed=1))
    recorder = measured("prefix_cache", Drifting("nowhere", 0), rollouts, True)
    share = next(m for m in recorder.measurements if m.name.endswith("prefix_cache_share"))
    assert share.value == 5 / 8
    assert not recorder.having("fail")


class Caching(Wobbly):
    """Scores by row number and forgets to look at the ids again."""

    def logprobs(self, rollouts, **how):
        self.cache = getattr(self, "cache", None) or FakeTrainer().logprobs(rollouts)
        return self.cache[: len(rollouts)]


@pytest.mark.parametrize("check", ["neighbours", "packed"])
def test_a_trainer_that_answers_from_a_cache_is_seen(check):
    rollouts = FakeEngine().sample(PROMPTS, SamplingParams(seed=1))
    failing = measured(check, Caching(None, 0), rollouts)
    assert "stale_scores" in causes(failing)


def test_an_engine_that_answers_from_a_cache_is_seen():
    engine = WobblyEngine("nowhere", 0)
    engine.score = lambda rollouts: [np.full(length, -1, np.float32) for length in rollouts.lengths]
    rollouts = FakeEngine().sample(PROMPTS, SamplingParams(seed=1))
    assert "stale_scores" in causes(measured("engine_batch", engine, rollouts))


def test_a_difference_between_thread_counts_is_seen():
    class Threaded(FakeTrainer):
        def logprobs(self, rollouts, *, batch_size=None):
            return [row - 0.05 * torch.get_num_threads() for row in super().logprobs(rollouts)]

    rollouts, before = FakeEngine().sample(PROMPTS, SamplingParams(seed=1)), torch.get_num_threads()
    assert measured("threads", Threaded(), rollouts).having("fail")
    assert not measured("threads", FakeTrainer(), rollouts).having("fail")
    assert torch.get_num_threads() == before


# -- parts ---------------------------------------------------------------------------------------------


def test_rows_are_spread_in_whole_multiples():
    assert spread(30, 8).tolist() == [0, 4, 8, 12, 16, 20, 24, 29]
    assert len(spread(30, 32, 4)) == 28
    assert len(spread(30, 8, 16)) == 16
    with pytest.raises(RlcheckError, match="batch_multiple is 8, but there are 3 rows"):
        spread(3, 32, 8)


def test_replaced_rows_keep_their_lengths_and_leave_the_others_alone():
    rollouts = FakeEngine().sample(PROMPTS, SamplingParams(seed=1))
    changed = replace_rows(rollouts, [1, 3], np.random.default_rng(0))
    assert np.array_equal(changed.contexts, rollouts.contexts)
    moved = [row for row in range(8) if changed.responses()[row] != rollouts.responses()[row]]
    assert moved == [1, 3]


def test_the_common_start_ends_at_the_first_other_id():
    first = Rollouts.from_lists([[1], [1], [1]], [[5, 6, 7], [5, 6], [5]])
    second = Rollouts.from_lists([[1], [1], [1]], [[5, 9, 7], [5, 6, 7], [4]])
    assert common_start(first, second).tolist() == [True, False, False, True, True, False]


def test_differences_at_the_edges():
    rollouts = Rollouts.from_lists([[1], [1]], [[5, 6, 7], [5, 6]])
    first = np.array([-1, -np.inf, np.nan, -2, -3], np.float32)
    second = np.array([-1, -np.inf, np.nan, -np.inf, -3.5], np.float32)
    difference = Difference(rollouts, first, second, rollouts.mask)
    assert (difference.n, difference.unequal) == (4, 2)
    assert difference.mean_abs == pytest.approx(0.5 / 3)
    assert difference.max_abs == np.inf
    assert difference.rows_apart(1.0) == 1
    assert "row 1 (1 + 2 tokens), position 0: -2 (0xc0000000) against -inf" in difference.explain_first()
    assert bits(1.0) == "0x3f800000"
    with pytest.raises(RlcheckError, match="no trained token to compare"):
        Difference(rollouts, first, second, np.zeros(5, bool))


def test_the_faults_reach_only_what_they_break(stack):
    trainer, rollouts = stack("embedded")
    broken = batch.one_document(trainer, np.random.default_rng(0))
    for one, other in zip(broken.logprobs(rollouts), trainer.logprobs(rollouts), strict=True):
        np.testing.assert_array_equal(one, other)
