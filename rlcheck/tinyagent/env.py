"""BugFixEnv: read the file that a hint names, see the fix, apply it; many episodes at once.

An episode is a token sequence: the prompt ``BOS file``, then up to three turns, each an action of three tokens
chosen by the policy (``READ file END`` or ``FIX candidate END``) and an observation of two tokens by the
environment (``OBS candidate`` or ``OBS NONE``). A fix ends the episode, and so does a malformed action.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PAD, BOS, READ, FIX, END, OBS, NONE = range(7)
FILES, CANDIDATES = 4, 5
FIRST_FILE = 7
FIRST_CANDIDATE = FIRST_FILE + FILES
VOCABULARY = FIRST_CANDIDATE + CANDIDATES
PROMPT, ACTION, OBSERVATION, TURNS = 2, 3, 2, 3
TURN = ACTION + OBSERVATION
WIDTH = PROMPT + TURNS * TURN
"""Tokens of the longest episode."""


class Tasks(NamedTuple):
    """The buggy ``file`` and the right ``fix`` of each episode (B,), whether reading it ``reveals`` the fix, and
    the ``group`` of episodes that share a task."""

    file: Tensor
    fix: Tensor
    reveals: Tensor
    group: Tensor


def draw_tasks(episodes: int, group_size: int, reveal: float, generator: torch.Generator) -> Tasks:
    """Draw one task for every ``group_size`` episodes; reading the right file shows the fix with ``reveal``."""
    groups = episodes // group_size
    file = torch.randint(FILES, (groups,), generator=generator)
    fix = torch.randint(CANDIDATES, (groups,), generator=generator)
    reveals = torch.rand(groups, generator=generator) < reveal
    return Tasks(*(column.repeat_interleave(group_size) for column in (file, fix, reveals, torch.arange(groups))))


class BugFixEnv:
    """B episodes in lockstep: ``done``, ``passed``, ``malformed`` (B,) bool and the number of ``reads`` (B,)."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.done = torch.zeros_like(tasks.reveals)
        self.passed = torch.zeros_like(tasks.reveals)
        self.malformed = torch.zeros_like(tasks.reveals)
        self.reads = torch.zeros(len(tasks.file))

    @property
    def prompts(self) -> Tensor:
        """The prompts (B, 2): BOS and the hinted file."""
        return torch.stack([torch.full_like(self.tasks.file, BOS), FIRST_FILE + self.tasks.file], 1)

    @property
    def rewards(self) -> Tensor:
        """1 where the right fix was applied, else 0 (B,)."""
        return self.passed.float()

    def step(self, actions: Tensor) -> Tensor:
        """Take one action (B, 3) of every episode, those of ended ones ignored, and return observations (B, 2)."""
        verb, argument, end = actions.unbind(1)
        closed = ~self.done & (end == END)
        file = (argument >= FIRST_FILE) & (argument < FIRST_CANDIDATE)
        reads = closed & (verb == READ) & file
        fixes = closed & (verb == FIX) & (argument >= FIRST_CANDIDATE)
        self.malformed |= ~self.done & ~reads & ~fixes
        self.passed |= fixes & (argument == FIRST_CANDIDATE + self.tasks.fix)
        self.reads += reads
        self.done = self.done | fixes | self.malformed
        shown = reads & (argument == FIRST_FILE + self.tasks.file) & self.tasks.reveals
        answer = torch.where(shown, FIRST_CANDIDATE + self.tasks.fix, NONE)
        return torch.stack([torch.full_like(answer, OBS), answer], 1)
