"""TinyAgent: its world, its policy as an engine's and a trainer's model, and training that repeats itself."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_cases import mini

from rlcheck import RlcheckError, advantages, corrections, tables
from rlcheck.tables import staleness
from rlcheck.tinyagent import (
    MINI,
    SIZES,
    Recipe,
    TinyAgentLoop,
    base_policy,
    bf16_copy,
    env,
    fp8_cache_copy,
    fp8_copy,
    held_out,
    imitation,
    train_offpolicy,
    train_rl,
)
from rlcheck.tinyagent.env import END, FIX, NONE, OBS, READ, BugFixEnv, Tasks, draw_tasks
from rlcheck.tinyagent.policy import Forward, make_policy
from rlcheck.tinyagent.rollout import rollout, sha256
from rlcheck.tinyagent.training import _advantages

FILE, CANDIDATE = env.FIRST_FILE, env.FIRST_CANDIDATE


def world(rows=1, reveals=True):
    """Episodes whose bug is in file 2 and whose fix is candidate 3."""
    return BugFixEnv(
        Tasks(torch.full((rows,), 2), torch.full((rows,), 3), torch.full((rows,), reveals), torch.arange(rows))
    )


def act(*actions):
    return torch.tensor(actions)


def test_reading_the_right_file_shows_the_fix_and_applying_it_passes():
    one = world()
    assert one.prompts.tolist() == [[env.BOS, FILE + 2]]
    assert one.step(act([READ, FILE + 2, END])).tolist() == [[OBS, CANDIDATE + 3]]
    assert not one.done.any()
    assert one.step(act([FIX, CANDIDATE + 3, END])).tolist() == [[OBS, NONE]]
    assert (one.rewards.tolist(), one.reads.tolist(), one.done.tolist()) == ([1.0], [1.0], [True])


def test_another_file_or_an_unlucky_read_shows_nothing():
    assert world().step(act([READ, FILE + 1, END]))[0, 1] == NONE
    assert world(reveals=False).step(act([READ, FILE + 2, END]))[0, 1] == NONE


@pytest.mark.parametrize(
    "action", [[READ, CANDIDATE, END], [FIX, FILE, END], [FIX, CANDIDATE + 3, OBS], [OBS, FILE, END], [FIX, FIX, END]]
)
def test_a_malformed_action_ends_the_episode_without_reward(action):
    one = world()
    one.step(act(action))
    assert (one.malformed.item(), one.done.item(), one.rewards.item()) == (True, True, 0.0)
    one.step(act([FIX, CANDIDATE + 3, END]))
    assert one.rewards.item() == 0.0


def test_a_wrong_fix_ends_the_episode():
    one = world()
    one.step(act([FIX, CANDIDATE + 2, END]))
    assert (one.done.item(), one.malformed.item(), one.rewards.item()) == (True, False, 0.0)


def sampled(policy, seed=0, episodes=200):
    generator = torch.Generator().manual_seed(seed)
    batch = rollout(Forward(policy), draw_tasks(episodes, 1, 0.75, generator), generator)
    return batch, generator.get_state()


def test_decoding_agrees_with_one_full_forward_and_the_environment():
    policy = base_policy(MINI)
    batch, _ = sampled(policy)
    with torch.no_grad():
        full = Forward(policy).logprobs(batch.tokens)[:, env.PROMPT - 1 :]
    assert (batch.engine_logprobs - full)[batch.mask].abs().max() < 1e-5
    assert not batch.engine_logprobs[~batch.mask].any()
    replayed = BugFixEnv(draw_tasks(200, 1, 0.75, torch.Generator().manual_seed(0)))
    for turn in range(env.TURNS):
        first = env.PROMPT + turn * env.TURN
        replayed.step(batch.tokens[:, first : first + env.ACTION])
    assert torch.equal(replayed.rewards, batch.rewards)
    assert torch.equal(replayed.reads, batch.reads)


def test_the_random_numbers_used_do_not_depend_on_the_policy():
    one, other = (sampled(make_policy(MINI, seed)) for seed in (0, 1))
    assert torch.equal(one[1], other[1])
    assert one[0].sha256() != other[0].sha256()
    assert sampled(make_policy(MINI, 0))[0].sha256() == one[0].sha256()


def test_a_base_is_made_once_and_kept(tmp_path, monkeypatch):
    quick = replace(MINI, imitation=3)
    monkeypatch.setenv("RLCHECK_CACHE", str(tmp_path))
    imitation._base.cache_clear()
    made = base_policy(quick)
    assert [folder.name[:14] for folder in tmp_path.iterdir()] == ["tinyagent-mini"]
    imitation._base.cache_clear()
    monkeypatch.setattr(imitation, "imitate", None)
    assert sha256(*base_policy(quick).parameters()) == sha256(*made.parameters())
    assert base_policy(quick) is not base_policy(quick)


def test_a_home_that_cannot_be_written_to_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RLCHECK_CACHE", str(tmp_path / "file"))
    imitation._base.cache_clear()
    assert base_policy(replace(MINI, imitation=2)) is not None
    imitation._base.cache_clear()


def test_group_baselines_share_a_task_and_centre_its_rewards():
    recipe = Recipe(learning_rate=0.0, reveal=0.75, episodes=16, baseline="group", group_size=4)
    generator = torch.Generator().manual_seed(0)
    batch = rollout(Forward(base_policy(MINI)), draw_tasks(16, 4, 0.75, generator), generator)
    assert torch.equal(batch.tokens[:, 1].view(4, 4), batch.tokens[::4, 1, None].expand(4, 4))
    own = advantages.from_name("group_mean")(batch.rewards, torch.arange(16) // 4)
    assert torch.allclose(_advantages(batch, recipe)[:, 0], own.float())
    with pytest.raises(RlcheckError, match="16 episodes a batch do not divide by 5"):
        replace(recipe, minibatches=5)


# -- lag 0 -------------------------------------------------------------------------------------------

FORTY_STEPS = """
import torch
from training_cases import mini
torch.set_num_threads(1)
print(mini().on_policy(40, 0).parameters_sha256[-1])
"""


def test_lag_0_is_the_on_policy_loop_over_forty_steps_in_a_fresh_process_too(monkeypatch):
    on, off = mini().on_policy(40, 0), mini().off_policy(40, 0, 0, None)
    assert on == off
    assert len(set(on.parameters_sha256)) == 40
    command = [sys.executable, "-c", FORTY_STEPS]
    fresh = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    assert fresh.stdout.strip() == on.parameters_sha256[-1]


@pytest.mark.parametrize("name", [None, "none", "tis", "mis", "sequence_tis"])
def test_no_correction_changes_lag_0_over_two_epochs_of_four_minibatches(name):
    loop = mini(epochs=2, minibatches=4)
    correction = name and corrections.from_name(name)
    assert loop.on_policy(3, 0).parameters_sha256 == loop.off_policy(3, 0, 0, correction).parameters_sha256


def test_versions_count_optimiser_steps():
    loop = mini(minibatches=2)
    assert loop.on_policy(4, 0).versions == [0, 2, 4, 6]
    assert loop.off_policy(4, 0, 3, None).versions == [0, 0, 1, 3]


def test_training_moves_the_copy_not_the_base():
    loop = mini()
    before = sha256(*loop.base.parameters())
    run = train_rl(loop.base, loop.recipe, 0, steps=2)
    assert sha256(*loop.base.parameters()) == before != sha256(*run.policy.parameters())
    assert set(loop.frozen(2, 0).parameters_sha256) == {before}
    assert 0 <= held_out(run.policy, 0.75, 50).pass_rate <= 1


# -- samplers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "low", "high"), [(fp8_copy, 1e-3, 0.1), (bf16_copy, 1e-4, 0.05), (fp8_cache_copy, 1e-4, 0.1)]
)
def test_samplers_differ_a_little_and_have_nothing_over_the_cap(sampler, low, high):
    loop = mini()
    run = train_offpolicy(loop.base, loop.recipe, 0, 4, sampler=sampler)
    for metrics in run.trace.metrics:
        assert low < metrics["mismatch"] < high
        assert metrics["over_cap"] == 0
    assert run.trace.parameters_sha256 != loop.on_policy(4, 0).parameters_sha256


# -- as a model of the suite -------------------------------------------------------------------------

STACK = """
import copy
import pytest
from rlcheck.engines import TransformersEngine
from rlcheck.tinyagent import MINI, base_policy
from rlcheck.trainers import TransformersTrainer

@pytest.fixture(scope="session")
def rlcheck_engine():
    return TransformersEngine(base_policy(MINI), name="tinyagent")

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return TransformersTrainer(base_policy(MINI), name="tinyagent")
"""


def test_the_checks_of_engine_and_trainer_run_on_the_policy(inner):
    outcomes = inner("-k", "mismatch or contract", conftest=STACK).parseoutcomes()
    assert outcomes["passed"] >= 10
    assert not {"failed", "errors"} & set(outcomes)


# -- the table ---------------------------------------------------------------------------------------


def test_the_staleness_table(capsys, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(staleness.ARMS, "rev", [staleness.Arm(), staleness.Arm(2, "tis"), staleness.Arm(float8=True)])
    monkeypatch.setitem(SIZES, "rev", MINI)
    figure = tmp_path / "curves.svg"
    tables.run("staleness", ["--seeds", "2", "--steps", "11", "--figure", str(figure)])
    printed = capsys.readouterr().out
    assert "11 steps of 64 episodes" in printed
    assert "lag 2 tis" in printed
    assert "outside all seeds here are those of lag 0 (.70" in printed
    assert figure.exists()


def test_loops_start_from_bases_of_their_own():
    one, other = (TinyAgentLoop.of_size(replace(MINI, imitation=2), seed) for seed in (0, 1))
    assert sha256(*one.base.parameters()) != sha256(*other.base.parameters())
