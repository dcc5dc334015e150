"""Faults of the weight sync, read off the trial that moved weights, pushed them and looked."""

from __future__ import annotations

from collections.abc import Iterator

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.probes import nats
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.weight_sync import PUSHES, Stage, Trial, agreement, arrivals, by_context, changed, mean_abs

ALL = 0.9
"""Share of the tensors from which on it is the whole push that did not arrive."""

APART = 3.0
"""Times that one mean |d| must exceed another, so that places differ by more than chance."""


@detector("weight_sync.", lasting=True)
def tensors(case: Case) -> Iterator[Finding]:
    """Which tensors followed the pushes: none, some, or all but a tied one."""
    trial: Trial | None = case.fixture("rlcheck_sync_trial")
    if trial is None:
        return
    states = [trial.start, *(trial.stages[push].state for push in PUSHES)]
    for name, before, after in zip(PUSHES, states, states[1:], strict=False):
        sides = (before.trainer, after.trainer, before.engine, after.engine)
        if any(side is None for side in sides):
            return
        found = arrivals((before.trainer or {}, after.trainer or {}), (before.engine or {}, after.engine or {}))
        lost = {*found.unmoved, *found.foreign} - set(found.untied)
        if found.untied:
            evidence = (
                f"{' and '.join(found.untied)} are one tensor in the trainer, and two in the engine after '{name}'"
            )
            yield Finding("untied_head", 0.97, evidence)
        if lost and len(lost) < ALL * found.judged:
            evidence = (
                f"after '{name}' {len(found.unmoved)} of {found.judged} tensors of the engine stayed as they were and "
                f"{len(found.foreign)} hold other bytes than the trainer's, such as {sorted(lost)[0]}"
            )
            yield Finding("partial_sync", 0.95, evidence)
        elif lost:
            yield Finding("stale_weights", 0.7, f"after '{name}' none of {found.judged} tensors of the engine is new")


@detector("weight_sync.", lasting=True)
def rolled_back(case: Case) -> Iterator[Finding]:
    """Waking up gives tensors the bytes of an earlier time."""
    trial: Trial | None = case.fixture("rlcheck_sync_trial")
    if trial is None or "woken" not in trial.stages:
        return
    states = (trial.start, trial.stages[PUSHES[-1]].state, trial.stages["woken"].state)
    start, asleep, awake = (state.engine for state in states)
    if start is None or asleep is None or awake is None:
        return
    moved = changed(asleep, awake)
    back = [name for name in moved if awake.get(name) == start.get(name)]
    evidence = f"waking up changes {len(moved)} of {len(awake)} tensors, {len(back)} of them to what they were at first"
    yield Finding("stale_weights", 0.95 if back else 0.0, evidence)


@detector("weight_sync.", lasting=True)
def policies(case: Case) -> Iterator[Finding]:
    """Whose log-probs the engine's are: the trainer's of now, earlier ones, or the base model's."""
    trial: Trial | None = case.fixture("rlcheck_sync_trial")
    if trial is None:
        return
    for name, stage in trial.stages.items():
        counts = {other: stage.rows_of([other], 2 * agreement(case.numerics)) for other in stage.others}
        rows, of_base = len(stage.fresh.rollouts), counts.get("base", 0)
        for other, count in counts.items():
            evidence = (
                f"after '{name}' {count} of {rows} rows are nearer to the policy '{other}' than to the trainer's of "
                f"now, from which they are {nats(mean_abs(stage.fresh))} away"
            )
            score = 0.96 if count > rows / 2 else 0.6 if count else 0.0
            if other == "base":
                yield Finding("base_adapter", score, evidence)
            else:  # an adapter that starts from 0 makes earlier weights the base model's
                yield Finding("stale_weights", score / 2 if of_base >= count else score, evidence)


@detector("weight_sync.", lasting=True)
def places(case: Case) -> Iterator[Finding]:
    """Where the engine is off: only on prompts that it knows, or more and more with the context."""
    trial: Trial | None = case.fixture("rlcheck_sync_trial")
    if trial is None:
        return
    limit = agreement(case.numerics)
    for name, stage in trial.stages.items():
        fresh = mean_abs(stage.fresh)
        if stage.cached is not None and fresh <= limit < mean_abs(stage.cached):
            cached, first = mean_abs(stage.cached), mean_abs(stage.cached, stage.cached.first)
            evidence = (
                f"after '{name}' mean |d| is {nats(cached)} on prompts answered before the push, {nats(first)} at "
                f"their first token, and {nats(fresh)} on new prompts"
            )
            yield Finding("stale_prefix_cache", 0.97 if cached > APART * fresh else 0.6, evidence)
        yield from _growth(name, stage, limit)


def _growth(name: str, stage: Stage, limit: float) -> Iterator[Finding]:
    pair = stage.fresh
    short, long = by_context(pair)
    near, far = mean_abs(pair, pair.first), mean_abs(pair, ~pair.first)
    shortest, longest = mean_abs(pair, short), mean_abs(pair, long)
    if near <= limit < far or longest > max(limit, APART * shortest):
        evidence = (
            f"after '{name}' the first token of a response is {nats(near)} off and later ones {nats(far)}; in the "
            f"shortest contexts it is {nats(shortest)}, in the longest {nats(longest)}: cached values are off"
        )
        yield Finding("kv_scale", 0.9 if near <= limit and far > APART * near else 0.6, evidence)


@detector("batch_invariance.prefix_cache")
def cache(case: Case) -> Iterator[Finding]:
    """Cached prompts are answered otherwise, fresh ones alike."""
    hit, again = (case.value("batch_invariance.prefix_cache_mean_abs", variant) for variant in ("hit", "again"))
    if hit is None or again is None:
        return
    evidence = f"a cached prompt changes log-probs by {nats(hit)}, asking again without the cache by {nats(again)}"
    yield Finding("stale_prefix_cache", 0.9 if hit > 10 * again else 0.2, evidence)
