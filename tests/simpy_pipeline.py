"""The pipeline once more, as simpy processes: written apart from the simulator, to be compared with it."""

import simpy


class SimpyPipeline:
    """Slots, a trainer and a weight sync; no failures, timeouts or groups. Seconds throughout."""

    def __init__(self, durations, *, slots, batch_size, train, sync, steps, eta, drain):
        self.durations, self.slots, self.batch_size = durations, slots, batch_size
        self.train, self.sync, self.steps, self.eta, self.drain = train, sync, steps, eta, drain
        self.env = simpy.Environment()
        self.version = self.started = self.running = 0
        self.paused = 0.0
        self.holding = False
        self.finished, self.batches, self.staleness = [], [], []
        self.busy = 0.0
        self.news = self.env.event()

    def run(self):
        """Seconds until the last version is published."""
        self.launch()
        self.env.run(until=self.env.process(self.trainer()))
        return self.env.now

    def launch(self):
        while self.running < self.slots and self.started < (self.version + 1 + self.eta) * self.batch_size:
            self.env.process(self.episode(self.started))
            self.started += 1
            self.running += 1

    def episode(self, number):
        begun, version, served = self.env.now, self.version, self.paused
        yield self.env.timeout(self.durations[number])
        while self.paused > served:  # syncs that began meanwhile are still to be waited for
            left, served = self.paused - served, self.paused
            yield self.env.timeout(left)
        self.running -= 1
        self.busy += self.env.now - begun
        self.finished.append((number, version))
        if not self.holding:
            self.launch()
        self.news.succeed()
        self.news = self.env.event()

    def trainer(self):
        while self.version < self.steps:
            while len(self.finished) < self.batch_size:
                yield self.news
            batch, self.finished = self.finished[: self.batch_size], self.finished[self.batch_size :]
            self.batches.append([number for number, _ in batch])
            self.staleness += [self.version - version for _, version in batch]
            yield self.env.timeout(self.train)
            self.holding = True
            while self.drain and self.running:
                yield self.news
            self.paused += self.sync
            yield self.env.timeout(self.sync)
            self.version += 1
            self.holding = False
            self.launch()
