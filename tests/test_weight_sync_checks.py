"""Pushed weights: planted faults fail and are named, healthy stacks pass, and each number sees what it should.

``RLCHECK_SEEDS=50`` sweeps more seeds.
"""

import pytest
import torch
from sync_cases import ALL, FEW, SYNC_FAULTS, failures, labels, measured, planted, stack, trial_of

from rlcheck.engines import TransformersEngine
from rlcheck.faults import FAULTS
from rlcheck.faults.adapters import adapt
from rlcheck.faults.kv_cache import Float8Engine
from rlcheck.faults.weight_sync import ChangedLoads
from rlcheck.trainers import TransformersTrainer
from rlcheck.weight_sync import arrivals, changed

# -- planted faults and healthy stacks -------------------------------------------------------------------


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("name", SYNC_FAULTS)
def test_a_planted_fault_fails_a_check_that_names_its_cause(name, seed):
    fault = FAULTS[name]
    dtype = "bfloat16" if seed % 2 else "float32"
    trial = trial_of(*planted(name, seed, dtype), seed)
    numerics = "quantised" if fault.cause == "kv_scale" else dtype
    assert trial.tells(numerics)
    assert fault.cause in {cause for m in failures(trial, numerics) for cause in m.causes}, fault.summary


OWN_GATES = {
    "cache_kept": {"cached_mean_abs", "cached_first_token_mean_abs"},
    "blocks_kept": {"cached_mean_abs", "cached_first_token_mean_abs"},
    "wakes_up_old": {"mean_abs[woken]", "first_token_mean_abs[woken]", "rows_of_earlier_weights[woken]"},
}


@pytest.mark.parametrize("name", OWN_GATES)
def test_a_localised_fault_fails_its_own_gates_only(name):
    found = labels(failures(trial_of(*planted(name, 0))))
    assert found
    assert all(any(label.startswith(gate) for gate in OWN_GATES[name]) for label in found)


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize(
    ("model", "dtypes"),
    [
        ("embedded", ["float32"]),
        ("embedded", ["bfloat16"]),
        ("embedded", ["bfloat16", "float32"]),
        ("embedded-tied", ["bfloat16"]),
    ],
)
def test_a_healthy_stack_passes(model, dtypes, seed):
    trial = trial_of(*stack(model, *dtypes), seed=seed)
    assert trial.tells(dtypes[0])
    assert not failures(trial, dtypes[0])
    assert all(measured(trial, check, dtypes[0]) for check in ALL)


def test_engine_and_trainer_on_one_module_need_no_copy():
    engine, _ = stack()
    trainer = TransformersTrainer(engine.model)
    trial = trial_of(engine, trainer, engine.reset_prefix_cache)
    assert {m.name for m in failures(trial)} == {"weight_sync.stuck_versions"}  # nobody counted


def test_a_cache_kept_by_declaration_is_reported():
    trial = trial_of(*planted("cache_kept", 1))
    assert labels(failures(trial)) == {
        f"cached_{what}[{push}]" for what in ("mean_abs", "first_token_mean_abs") for push in ("first", "second")
    }
    assert not failures(trial, kv_across_sync=True)


@pytest.mark.parametrize("seed", FEW)
def test_an_fp8_cache_that_keeps_its_scales_passes_when_declared(seed):
    engine, trainer = stack()
    assert not failures(trial_of(Float8Engine(engine, 2048.0, 4096.0), trainer, seed=seed), "quantised")


@pytest.mark.parametrize("seed", FEW)
def test_a_merged_adapter_passes(seed):
    engine, trainer = stack()
    adapt(trainer.model, 4, seed)
    trial = trial_of(engine, trainer, seed=seed)
    assert "base" in trial.stages["first"].others
    assert trial.tells("float32")
    assert not failures(trial)


@pytest.mark.parametrize("merged", [True, False])
def test_a_real_peft_adapter(merged):
    peft = pytest.importorskip("peft")
    engine, trainer = stack()
    config = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj", "down_proj"], lora_alpha=16)
    trainer = TransformersTrainer(peft.get_peft_model(trainer.model, config).get_base_model())

    def push():
        with torch.no_grad():
            base = {
                name.replace(".base_layer", ""): weight
                for name, weight in trainer.model.state_dict().items()
                if "lora_" not in name
            }
        engine.load_weights(trainer.weights() if merged else base)

    trial = trial_of(engine, trainer, push)
    assert trial.tells("float32")
    assert ("base_adapter" in {cause for m in failures(trial) for cause in m.causes}) == (not merged)
    assert bool(failures(trial)) == (not merged)


# -- single facts ----------------------------------------------------------------------------------------


def test_one_stale_replica_of_two_is_counted_in_rows():
    engine, trainer = stack()
    stale = TransformersEngine(stack()[0].model)
    sample = engine.sample

    def shared(prompts, asked):
        fresh, old = sample(prompts, asked), stale.sample(prompts, asked)
        return fresh.concatenate([(old if row == 2 else fresh).select([row]) for row in range(len(fresh))])

    engine.sample = shared
    found = labels(failures(trial_of(engine, trainer)))
    assert {"rows_of_earlier_weights[first]", "rows_of_earlier_weights[second]", "mean_abs[first]"} <= found


def test_a_step_too_small_to_tell_is_noticed():
    engine, trainer = stack(engine="bfloat16")
    perturb = trainer.perturb
    trainer.perturb = lambda scale, seed: perturb(scale / 100, seed)
    assert not trial_of(engine, trainer).tells("bfloat16")


def test_engine_and_trainer_that_disagreed_before_are_not_blamed_on_the_push():
    engine, trainer = stack()
    trainer.logprobs = lambda rollouts, score=trainer.logprobs: [row - 0.3 for row in score(rollouts)]
    recorder = measured(trial_of(engine, trainer), "check_engine_follows_the_trainer")
    assert not recorder.having("fail")
    assert "disagree before any push" in recorder.measurements[1].note


def test_a_trainer_whose_batches_have_a_multiple_is_asked_for_nothing_else():
    engine, trainer = stack()
    sizes = set()
    trainer.batch_multiple = 8
    trainer.logprobs = lambda rollouts, score=trainer.logprobs: sizes.add(len(rollouts)) or score(rollouts)
    assert not failures(trial_of(engine, trainer))
    assert {size % 8 for size in sizes} == {0}


def test_versions():
    engine, trainer = stack()
    stuck = ChangedLoads(engine, lambda weights, number: weights)
    stuck.load_weights = lambda weights: ChangedLoads.load_weights(stuck, weights, version=0)
    assert labels(failures(trial_of(stuck, trainer))) == {
        f"stuck_versions[{stage}]" for stage in ("first", "second", "restored")
    }
    constant = property(lambda self: 7, lambda self, value: None)
    trainer.__class__ = type("Uncounted", (TransformersTrainer,), {"version": constant})
    assert not failures(trial_of(stuck, trainer))
    trainer.__class__ = TransformersTrainer
    sample = engine.sample
    engine.sample = lambda prompts, asked: (lambda r: r.replace(versions=r.versions - 1))(sample(prompts, asked))
    assert labels(failures(trial_of(engine, trainer))) == {
        f"mistagged_tokens[{x}]" for x in ("first", "second", "restored")
    }


BEFORE = {"embed": "a", "q": "b", "frozen": "c", "norm.0": "1", "norm.1": "1"}
AFTER = {"embed": "A", "q": "B", "frozen": "c", "norm.0": "2", "norm.1": "3"}


@pytest.mark.parametrize(
    ("engine", "unmoved", "foreign"),
    [
        ((BEFORE, AFTER), (), ()),
        ((BEFORE, AFTER | {"q": "b"}), ("q",), ()),
        ((BEFORE, AFTER | {"norm.0": "3", "norm.1": "2"}), (), ("norm.0", "norm.1")),
        (({"tok": "a", "head": "a", "buffer": "x"}, {"tok": "A", "head": "a", "buffer": "x"}), ("head",), ()),
        (({"renamed": "1", "qkv": "fused"}, {"renamed": "3", "qkv": "fused"}), (), ()),
        (({"q": "b16"}, {"q": "B16"}), (), ()),
        (({"q": "b16"}, {"q": "b16"}), ("q",), ()),
    ],
)
def test_which_tensors_arrived(engine, unmoved, foreign):
    found = arrivals((BEFORE, AFTER), engine)
    assert (found.unmoved, found.foreign, found.untied) == (unmoved, foreign, ())
    assert found.judged


def test_tied_tensors_that_part():
    trainer = {"embed": "a", "head": "a"}, {"embed": "A", "head": "A"}
    assert arrivals(trainer, ({"embed": "x", "head": "x"}, {"embed": "X", "head": "x"})).untied == ("embed", "head")
    assert arrivals(trainer, ({"embed": "x", "head": "y"}, {"embed": "X", "head": "Y"})).untied == ()
    assert changed({"a": "1", "b": "2"}, {"a": "1", "c": "2"}) == ("b", "c")
