"""The graph of dependencies in plain Python: each node looks for what it waits for, and is replayed after it.

A node is an event and a side, 0 for its start and 1 for its end. Queues of streams are never full here: that
takes hundreds of operations.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

Node = tuple[int, int]
_OVERHEAD, _WAIT, _NEAR, _PART, _LATE = 100_000, 30_000, 30_000, 64, 64
_NEVER = -(2**61)


class Host(NamedTuple):
    """An event of a thread."""

    track: int
    start: int
    dur: int
    is_operator: bool


class Work(NamedTuple):
    """A GPU operation, and the position of the call that launched it among the events of the host."""

    stream: int
    start: int
    dur: int
    launch: int | None
    is_copy: bool


class Wait(NamedTuple):
    """A call that waits for a stream or for all, until the call ``until``, or lets ``stream`` wait."""

    call: int
    on: int | None
    until: int | None
    stream: int | None
    only_waits: bool


class Edge(NamedTuple):
    source: Node
    kind: str
    length: int


class Graph:
    def __init__(
        self,
        host: list[Host],
        callers: dict[int, int],
        works: list[Work],
        waits: list[Wait],
        events: list[tuple[int, bool]],
        handed: list[tuple[int, int]],
    ) -> None:
        self.host, self.works = host, works
        # The node before where it is not the one before in the lane.
        self.ahead: dict[Node, Node] = {}
        self.span = [(event.start, event.start + event.dur) for event in (*host, *works)]
        self.lanes: list[list[Node]] = []
        self.owner: dict[Node, int | None] = {}
        self.kind: dict[Node, str] = {}
        self.edges: dict[Node, list[Edge]] = defaultdict(list)
        self.threads = list(dict.fromkeys(event.track for event in host))
        self.streams = list(dict.fromkeys(work.stream for work in works))
        for track in self.threads:
            self._thread([at for at, event in enumerate(host) if event.track == track])
        for stream in self.streams:
            self._stream([len(host) + at for at, work in enumerate(works) if work.stream == stream])
        self.lane = {
            node: (number, at) for number, lane in enumerate(self.lanes) for at, node in enumerate(lane)
        }
        self.length = {node: self.at(node) - self.at(self.before(node)) for node in self.lane}
        waiting = [found for lane in self.lanes[len(self.threads) :] for found in self._waiting(lane)]
        launched = [(start, ready, call) for _, start, _, ready, call in waiting if call is not None]
        idle = [start - call for start, ready, call in launched if ready is None or ready <= call]
        busy = [
            (start, ready)
            for start, ready, call in launched
            if ready is not None and call + _OVERHEAD <= ready
        ]
        self.delay, self.gap = _quartile(idle), _quartile([start - ready for start, ready in busy])
        self._launches(waiting)
        self._copies()
        for wait in waits:
            self._wait(wait)
        self._events(events)
        self._unrecorded(waiting)
        self._threads(callers)
        self._handed(handed)
        self._settle()

    def at(self, node: Node | None) -> int:
        return 0 if node is None else self.span[node[0]][node[1]]

    def before(self, node: Node) -> Node | None:
        if node in self.ahead:
            return self.ahead[node]
        number, at = self.lane[node]
        return self.lanes[number][at - 1] if at else None

    def after(self, node: Node) -> Node | None:
        number, at = self.lane[node]
        return self.lanes[number][at + 1] if at + 1 < len(self.lanes[number]) else None

    def until(self, number: int, moment: int, times: dict[Node, int] | None = None) -> Node | None:
        """The latest node of a lane that is no later than a moment."""
        if times is None and number < len(self.threads):
            # Threads are in order of the recorded times.
            place = bisect_right(self.lanes[number], moment, key=self.at)
            return self.lanes[number][place - 1] if place else None
        at = self.at if times is None else times.__getitem__
        found = [
            (at(node), place, node) for place, node in enumerate(self.lanes[number]) if at(node) <= moment
        ]
        return max(found)[2] if found else None

    def _thread(self, events: list[int]) -> None:
        lane: list[Node] = []
        opened: list[int] = []

        def close(moment: float) -> None:
            while opened and self.span[opened[-1]][1] <= moment:
                event = opened.pop()
                lane.append((event, 1))
                self.owner[event, 1], self.kind[event, 1] = event, "host"

        for event in sorted(events, key=lambda at: (self.span[at][0], -self.span[at][1], at)):
            close(self.span[event][0])
            lane.append((event, 0))
            self.owner[event, 0], self.kind[event, 0] = (opened[-1] if opened else None), "host"
            opened.insert(sum(self.span[other][1] >= self.span[event][1] for other in opened), event)
        close(math.inf)
        self.lanes.append(lane)

    def _stream(self, events: list[int]) -> None:
        lane: list[Node] = []
        for event in sorted(events, key=lambda at: (*self.span[at], at)):
            lane += [(event, 0), (event, 1)]
            self.owner[event, 0], self.kind[event, 0] = None, "stream"
            self.owner[event, 1], self.kind[event, 1] = event, "execution"
        self.lanes.append(lane)

    def _launch(self, node: Node) -> Node | None:
        launch = self.works[node[0] - len(self.host)].launch
        return None if launch is None else (launch, 0)

    def _waiting(self, lane: list[Node]) -> list[tuple[Node, int, Node | None, int | None, int | None]]:
        """Of each operation of a stream: its start, the node before it, and when that and its launch were."""
        found = []
        latest: Node | None = None
        for node in lane[::2]:
            start, end = self.span[node[0]]
            before = latest
            if latest is not None and self.at(latest) >= end and self.at(latest) > start:
                before = (latest[0], 0)
            call = self._launch(node)
            found.append((node, start, before, None if before is None else self.at(before),
                          None if call is None else self.at(call)))  # fmt: skip
            if latest is None or self.at(latest) <= end:
                latest = (node[0], 1)
        return found

    def _add(self, source: Node, target: Node, kind: str, least: float) -> None:
        recorded = self.at(target) - self.at(source)
        self.edges[target].append(Edge(source, kind, int(min(recorded, least))))

    def _launches(self, waiting: list[Any]) -> None:
        for node, start, before, ready, _ in waiting:
            number, place = self.lane[node]
            is_next = place > 0 and before == self.lanes[number][place - 1]
            self.length[node] = min(self.length[node], self.gap) if is_next else _NEVER
            if before is not None and not is_next:
                self._add(before, node, "stream", self.gap)
            if ready is not None and ready > start:
                self._add(self.lanes[number][place - 2], node, "stream", 0)
            call = self._launch(node)
            if call is not None:
                self._add(call, node, "launch", self.delay)

    def _return(self, ended: Node, returned: Node, kind: str) -> None:
        late = self.at(returned) - self.at(ended)
        self._add(ended, returned, kind, late)
        self.length[returned] = min(self.length[returned], max(late, 0))

    def _copies(self) -> None:
        for at, work in enumerate(self.works):
            event = len(self.host) + at
            if work.is_copy and work.launch is not None:
                called, returned = self.span[work.launch]
                if called < self.span[event][1] <= returned:
                    self._return((event, 1), (work.launch, 1), "synchronisation")

    def _launched(self, stream: int) -> list[tuple[Node, float]]:
        """The operations of a stream, and when each had been launched, with all before it."""
        last = -math.inf
        found = []
        for node in self.lanes[len(self.threads) + self.streams.index(stream)][::2]:
            call = self._launch(node)
            last = last if call is None else max(last, min(self.at(call), self.at(node)))
            found.append((node, last))
        return found

    def _wait(self, wait: Wait) -> None:
        called, returned = self.span[wait.call]
        moment = called if wait.until is None else self.span[wait.until][0]
        target: Node = (wait.call, 1)
        if wait.stream is not None:
            later = [node for node, at in (self._launched(wait.stream) if wait.stream in self.streams else [])
                     if at > called]  # fmt: skip
            if not later:
                return
            target = later[0]
        awaited = [stream for stream in self.streams if wait.on in (None, stream)]
        if wait.on is not None and not awaited:
            return
        ended = []
        for stream in awaited:
            launched = [node for node, at in self._launched(stream) if at < moment]
            done = [(node[0], 1) for node in reversed(launched)][:_LATE]
            ended += [node for node in done if self.at(node) <= self.at(target)][:1]
        if wait.stream is not None:
            for node in ended:
                self._add(node, target, "event", self.gap)
            return
        latest = max((self.at(node) for node in ended), default=_NEVER)
        late, waited = returned - latest, latest - called
        returns = waited > 0 and late <= max(waited, _WAIT)
        for node in ended:
            self._add(node, target, "synchronisation", late if returns else 0)
        if returns:
            self.length[target] = min(self.length[target], late)
        if wait.only_waits and waited <= 0 and returned - called >= _WAIT:
            self.kind[target] = "unknown"

    def _events(self, events: list[tuple[int, bool]]) -> None:
        """Calls that record an event on the stream of the last launch, or let the next one wait for it."""
        of_call: dict[int, list[Node]] = defaultdict(list)
        for at, work in enumerate(self.works, len(self.host)):
            if work.launch is not None:
                of_call[work.launch].append((at, 0))
        waits = dict(events)
        calls = sorted({*waits, *of_call}, key=lambda call: (self.at((call, 0)), self.lane[call, 0]))
        last: dict[int, Node] = {}
        awaited: dict[int, int] = defaultdict(int)
        recorded: list[Node] = []
        for call in calls if events else ():
            thread = self.lane[call, 0][0]
            if of_call[call]:
                works = sorted(of_call[call], key=self.lane.__getitem__)
                others = [node for node in recorded if self.lane[node][0] != self.lane[works[0]][0]]
                for node in others[::-1][: awaited[thread]]:
                    if self.at((node[0], 1)) <= self.at(works[0]):
                        self._add((node[0], 1), works[0], "event", self.gap)
                awaited[thread] = 0
                last[thread] = works[-1]
            elif waits[call]:
                awaited[thread] += 1
            elif thread in last:
                node = last[thread]
                recorded = [other for other in recorded if self.lane[other][0] != self.lane[node][0]]
                recorded.append(node)

    def _unrecorded(self, waiting: list[Any]) -> None:
        events = {
            node: max((self.at(edge.source) for edge in edges if edge.kind == "event"), default=None)
            for node, edges in self.edges.items()
        }
        ended = sorted(
            (self.span[node[0]][1], at, *self.lane[node], node)
            for stream in self.streams
            for node, at in self._launched(stream)
        )
        for node, start, _, ready, call in waiting:
            known = [ready, events.get(node), None if call is None else call + self.delay]
            wait = start - max((moment for moment in known if moment is not None), default=start)
            if wait <= _NEAR or len(self.streams) < 2:
                continue
            near = [row for row in reversed(ended) if start - max(_NEAR, wait // _PART) <= row[0] <= start]
            for _, at, number, _, other in near[:_LATE]:
                if number != self.lane[node][0] and (call is None or at < call):
                    self._add((other[0], 1), node, "event", self.gap)
                    break

    def _threads(self, callers: dict[int, int]) -> None:
        for number in range(len(self.threads)):
            place = 0
            lane = self.lanes[number]
            while place < len(lane):
                node = lane[place]
                place += 1
                track = callers.get(node[0])
                if self.owner[node] is not None or track not in self.threads:
                    continue
                caller = self.threads.index(track)
                before = self.before(node)
                called = self.until(caller, self.at(node))
                if caller == number or called is None or (before and self.at(called) < self.at(before)):
                    continue
                self._add(called, node, "thread", math.inf)
                self.length[node] = _NEVER if before is None else 0
                resumed = self.after(called)
                if resumed is None:
                    continue
                while place < len(lane) and self.at(lane[place]) <= self.at(resumed):
                    place += 1
                last = lane[place - 1]
                self._add(last, resumed, "thread", math.inf)
                idle = self.at(node) - self.at(called) + self.at(resumed) - self.at(last)
                self.length[resumed] = min(self.length[resumed], idle)

    def _handed(self, handed: list[tuple[int, int]]) -> None:
        """Work of other threads starts after the call, which waits for its end if it does nothing else."""
        pairs = [pair for pair in handed if self.lane[pair[0], 0][0] != self.lane[pair[1], 0][0]]
        delays = [
            self.at((event, 0)) - self.at((call, 0))
            for event, call in pairs
            if (before := self.before((event, 0))) is None or self.at(before) <= self.at((call, 0))
        ]
        delay = _quartile(delays)
        for event, call in pairs:
            self._add((call, 0), (event, 0), "thread", delay)
            is_first = self.before((event, 0)) is None
            self.length[event, 0] = _NEVER if is_first else min(self.length[event, 0], delay)
        for event, call in pairs:
            start, end = self.span[event]
            lane = self.lanes[self.lane[call, 0][0]]
            last = bisect_right(lane, end, key=self.at)
            if not last:
                continue
            places = [
                place
                for place in range(last, 0, -1)
                if place == last or self.at(lane[place]) >= end - max(_NEAR, (end - start) // _PART)
            ]
            waits = []
            for place in places:
                if place < len(lane):
                    owner, (idle, resumed) = self.owner[lane[place]], lane[place - 1 : place + 1]
                    is_leaf = owner is not None and (owner, 0) == idle and (owner, 1) == resumed
                    if not (is_leaf and self.host[owner or 0].is_operator):
                        waits.append((min(self.at(resumed), end) - self.at(idle), -place, resumed))
            if waits and max(waits)[0] >= _WAIT:
                self._return((event, 1), max(waits)[2], "thread")

    def _settle(self) -> None:
        for node in self.lane:
            before = self.at(self.before(node))
            if not self.edges[node]:
                self.length[node] = self.at(node) - before
                continue
            arrivals = [
                (self.at(edge.source) + edge.length, place) for place, edge in enumerate(self.edges[node])
            ]
            arrival, place = max(arrivals)
            if before + self.length[node] > arrival:
                self.length[node] = self.at(node) - before
            else:
                edge = self.edges[node][place]
                self.edges[node][place] = edge._replace(length=self.at(node) - self.at(edge.source))
        for node, length in self.length.items():
            if self.kind[node] == "stream" and length > _OVERHEAD:
                self.kind[node] = "unknown"
            self.edges[node] = [
                edge._replace(kind="unknown") if edge.length - self._called(edge) > _OVERHEAD else edge
                for edge in self.edges[node]
            ]

    def _called(self, edge: Edge) -> float:
        """How long the call of a launch took; only launches and streams can be overhead."""
        start, end = self.span[edge.source[0]]
        return end - start if edge.kind == "launch" else 0 if edge.kind == "stream" else math.inf

    def free(self, freed: list[bool], phases: list[int]) -> None:
        """Lets nothing wait for operations that are ``freed`` until its stream begins another phase."""
        for lane in self.lanes[len(self.threads) :]:
            kept = [node for node in lane[::2] if not freed[node[0]]]
            for at, node in enumerate(lane[::2]):
                before = lane[2 * at - 1] if at else None
                if freed[node[0]]:
                    ends = [ended for ended in lane[1 : 2 * at : 2] if freed[ended[0]]]
                    if before and not freed[before[0]] and ends:
                        self._release(ends[-1], node)
                    continue
                place = kept.index(node)
                if not place or phases[kept[place - 1][0]] != phases[node[0]]:
                    continue
                later = [other for other in kept[place:] if phases[other[0]] != phases[node[0]]]
                waits = [
                    edge
                    for edge in self.edges[node]
                    if edge.kind in ("event", "stream") and freed[edge.source[0]]
                ]
                self.edges[node] = [edge for edge in self.edges[node] if edge not in waits]
                sources = [edge.source for edge in waits]
                if before and freed[before[0]]:
                    self.ahead[node] = (kept[place - 1][0], 1)
                    sources.append(before)
                for source in sources:
                    if later:
                        self._release(source, later[0])

    def _release(self, source: Node, target: Node) -> None:
        self.edges[target].append(Edge(source, "released", min(0, self.at(target) - self.at(source))))

    def replay(
        self, own: list[float], waiting: list[float], gap: list[float] | None = None
    ) -> dict[Node, int]:
        """When each node is reached if its lengths are multiplied."""
        self.own, self.waiting, self.gap = own, waiting, gap or [1.0] * len(own)
        earlier = {
            node: {
                before
                for before in (self.before(node), *(edge.source for edge in self.edges[node]))
                if before
            }
            for node in self.lane
        }
        times: dict[Node, int] = {}
        for node in TopologicalSorter(earlier).static_order():
            times[node] = max(
                self._ready(node, times),
                *(self._arrival(edge, node, times) for edge in self.edges[node]),
                _NEVER,
            )
        return times

    def _ready(self, node: Node, times: dict[Node, int]) -> int:
        before, owner = self.before(node), self.owner[node]
        by = self.own[owner] if owner is not None else self.gap[node[0]] if before else 1.0
        return (times[before] if before else 0) + _scaled(self.length[node], by)

    def _arrival(self, edge: Edge, node: Node, times: dict[Node, int]) -> int:
        time = times[edge.source] + edge.length
        by = self.waiting[node[0]]
        if edge.kind == "thread":
            return times[edge.source] + _scaled(edge.length, self.gap[node[0]])
        if edge.kind == "launch":
            return times[edge.source] + _scaled(edge.length, by)
        before = self.before(node)
        reached = times[before] if before else 0
        if edge.kind == "synchronisation" and time > reached:
            return reached + _scaled(time - reached, by)
        return time

    def path(self, times: dict[Node, int], start: int, end: int) -> list[tuple[int, int, int | None, str]]:
        """Start, duration, event and edge of each segment of the critical path of a window."""
        of_gpu = [
            edge.source
            for lane in self.lanes[len(self.threads) :]
            for node in lane
            for edge in self.edges[node]
        ]
        deciding = {self.lane[node][0] for node in of_gpu} | set(range(len(self.threads), len(self.lanes)))
        if not deciding and self.lanes:
            deciding = {max(range(len(self.lanes)), key=lambda at: (len(self.lanes[at]), -at))}
        last = [node for number in sorted(deciding) if (node := self.until(number, end, times)) is not None]
        node = max(last, key=lambda node: (times[node], self.lane[node][0]), default=None)
        found: list[tuple[int, int, int | None, str]] = []
        reached = end

        def add(since: float, event: int | None, kind: str) -> None:
            nonlocal reached
            since = max(since, start)
            if since < reached:
                if found and found[-1][2:] == (event, kind):
                    found[-1] = (since, found[-1][1] + reached - since, event, kind)
                else:
                    found.append((since, reached - since, event, kind))
                reached = since

        if node is not None:
            add(times[node], None, "unknown")
        while node is not None and reached > start:
            before = self.before(node)
            if self._ready(node, times) == times[node]:
                event = self.owner[node] if node[0] < len(self.host) else node[0]
                source, event, kind = (before, event, self.kind[node]) if before else (None, None, "unknown")
            else:
                arrivals = [
                    (self._arrival(edge, node, times), at) for at, edge in enumerate(self.edges[node])
                ]
                edge = self.edges[node][max(arrivals)[1]]
                source, event, kind = edge.source, node[0], edge.kind
            add(-math.inf if source is None else times[source], event, kind)
            node = source
        add(start, None, "unknown")
        return found[::-1]


def _quartile(values: list[int]) -> int:
    return max(0, sorted(values)[len(values) // 4]) if values else 0


def _scaled(length: int, by: float) -> int:
    return length if by == 1 or length <= 0 else math.floor(length * by + 0.5)
