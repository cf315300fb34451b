"""Happens-before by vector clocks over partitions and asynchronous operations.

An agent is a partition or one asynchronous operation. A vector clock is a dict from agent to the last time of that agent
that is known; an access of agent a at time t happened before everything whose clock has ``clock[a] >= t``. Beside
each clock goes a second one, ``fenced``: what of the agents' ordinary writes is visible to the asynchronous proxy.
"""

import itertools

_numbers = itertools.count()


def join(into, other):
    for agent, time in other.items():
        if into.get(agent, -1) < time:
            into[agent] = time


class Agent:
    """Something that acts: it has a name for messages, a number, a clock and a fenced clock."""

    def __init__(self, name, clock=None, fenced=None):
        self.name = name
        self.number = next(_numbers)
        self.clock = dict(clock or {})
        self.fenced = dict(fenced or {})
        self.clock[self.number] = 0

    @property
    def time(self):
        return self.clock[self.number]

    def tick(self):
        """What follows is not known to those who learned the clock so far."""
        self.clock[self.number] += 1

    def learn(self, clock, fenced):
        join(self.clock, clock)
        join(self.fenced, fenced)

    def fence(self):
        """Make all that happened before visible to the asynchronous proxy."""
        self.fenced = dict(self.clock)
        self.tick()
