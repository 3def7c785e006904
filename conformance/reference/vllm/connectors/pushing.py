"""KV that a prefill engine writes into a decode engine, in plain Python: what is asked for, and when it has come.

The request is at both engines at once. The decode engine gives it blocks and tells the prefill engine which; the whole
prompt is written once it is computed there, and a step has been launched after that. Nothing is sent layer by layer.
Read from vLLM 0.32, `vllm/distributed/kv_transfer/kv_connector/v1/nixl`: `push_scheduler.py`, `push_worker.py`.
"""

import math

from simulator.engines.vllm.connectors.pulling import Nic, Pull, Pulls, Wires


class PushNetwork:
    """When each write is over, and when its two engines know.

    A lease is not renewed (vllm#53095): what a decode engine asks for later never comes, and the request waits for
    ever. So do the blocks of one whose client leaves after it has asked and before its prompt is computed.
    """

    def __init__(self, nics: list[Nic]) -> None:
        self.nics, self._wires = nics, Wires(nics)
        self.sources: dict[int, int] = {}  # by request: the engine that computes its KV …
        self._targets: dict[int, int] = {}  # … and the one that needs it
        self._asked: dict[int, tuple[int, float]] = {}  # blocks to write, and from when on the source knows
        self._offered: set[int] = set()  # computed, to be written
        self._lost: dict[int, set[int]] = {engine: set() for engine in range(len(nics))}  # by decode engine
        self._looked_s = [-math.inf] * len(nics)  # when the engine's worker read its messages last
        self._received_s: list[dict[int, float]] = [{} for _ in nics]  # by decode engine and request
        self._sent_s: list[dict[int, float]] = [{} for _ in nics]  # by prefill engine

    def send(self, request: int, source: int, target: int) -> None:
        """A request is sent to both engines."""
        self.sources[request], self._targets[request] = source, target

    def hold(self, engine: int, request: int, until_s: float) -> None:
        """An engine keeps a request's KV, for that long at most."""
        self._sent_s[engine][request] = until_s

    def leave(self, request: int) -> None:
        """A request's client has left: what it asked for never comes unless it is computed."""
        if request in self._asked and request not in self._sent_s[self.sources[request]]:
            self._lost[self._targets[request]].add(request)

    def num_lost(self, engine: int) -> int:
        """Requests whose KV the engine waits for, and which never comes."""
        return len(self._lost[engine])

    def launch(self, engine: int, pulls: Pulls, now_s: float) -> None:
        """A step of the engine is launched: what it asks for goes out, what it has computed can be written."""
        for pull in pulls.asked:
            self.ask(engine, pull, now_s)
        for request in pulls.offered:
            self._offered.add(request)
            if request in self._asked:
                self._write(request, now_s)
        self.tell(engine, pulls, now_s)

    def ask(self, target: int, pull: Pull, now_s: float) -> None:
        """A decode engine has blocks for a request."""
        source = self.sources[pull.request]
        known_s = now_s + self._wires.message_s(source, target)
        self._asked[pull.request] = pull.num_blocks, known_s
        if pull.request not in self._offered:
            return
        if self._sent_s[source].get(pull.request, -math.inf) > known_s:
            self._write(pull.request, known_s)
        else:  # its lease is over
            self._lost[target].add(pull.request)

    def _write(self, request: int, now_s: float) -> None:
        source, target = self.sources[request], self._targets[request]
        num_blocks, known_s = self._asked.pop(request)
        begin_s, post_s = max(now_s, known_s), self.nics[source].post_s
        end_s = self._wires.carry(source, target, num_blocks, post_s=post_s, now_s=begin_s)
        self._received_s[target][request] = end_s
        self._sent_s[source][request] = min(self._sent_s[source][request], end_s)

    def tell(self, engine: int, pulls: Pulls, now_s: float) -> None:
        """A step of the engine is launched: with its output comes what its worker knows by now.

        That a write from here is over it sees at once. That one to here is over a message says, and messages are read
        in the background: with a step that asks for something, else after it, to be seen with the next.
        """
        looked_s = now_s if pulls.asked else self._looked_s[engine]
        for known_s, told, until_s in (
            (self._received_s[engine], pulls.received, looked_s),
            (self._sent_s[engine], pulls.sent, now_s),
        ):
            for request in sorted(request for request, end_s in known_s.items() if end_s <= until_s):
                del known_s[request]
                told.append(request)
        self._looked_s[engine] = now_s

    def next_end_s(self, engine: int) -> float:
        """When the next write ends that the engine does not know to be over; infinity: there is none."""
        return min([*self._received_s[engine].values(), *self._sent_s[engine].values()], default=math.inf)
