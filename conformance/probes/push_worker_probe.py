"""When vLLM's own push worker tells that a write to its engine is over; run by an interpreter that has vLLM.

Its writer thread runs over what stands for NIXL, which has one message for it. Prints, for steps that send nothing and
for steps that send a registration, how often the first and the second step after the message told of it.
"""

import json
import queue
import threading
import time
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker

QUEUES = (
    "_reg_send_inbox", "_finished_blocks_inbox", "_pending_completion_notifs", "_evict_finished_inbox",
    "_deferred_push_inbox", "_failed_recv_reqs",
)  # fmt: skip
A_WHILE_S = 0.003  # longer than the thread takes to read its messages


class Messages:
    """Stands for the NIXL agent."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        found, self.waiting = self.waiting, []
        return {"prefill": found}


def make_worker(messages: Messages) -> Any:
    """What the two methods that tell of writes use, and no more."""
    worker = object.__new__(NixlPushConnectorWorker)
    for name in QUEUES:
        setattr(worker, name, queue.Queue())
    worker.__dict__.update(
        nixl_wrapper=messages, world_size=1, tp_rank=0, use_host_buffer=False, enable_permute_local_kv=False,
        enable_heterogeneous_attn_post_process=False, _physical_blocks_per_logical_kv_block=1, _has_mamba=False,
        _push_writer_stop=threading.Event(), _push_writer_wake=threading.Event(),
        _sending_transfers_lock=threading.Lock(), _sending_transfers=defaultdict(list), _send_failures=set(),
        _push_finished_blocks={}, _pending_d_registrations={}, _reqs_to_send={}, _reqs_to_process=set(),
        _recving_transfers={}, _recv_failures=set(), _replicated_pcp_done_sending=set(),
        consumer_notification_counts_by_req=Counter(),
        _cleanup_remote_engines=lambda: None, _send_pending_recv_notifs=lambda _: None,
        _send_registration_to_p=lambda *_: None,
        transfer_topo=SimpleNamespace(
            get_engine_info=lambda _: SimpleNamespace(remote_block_size=16, remote_physical_blocks_per_logical=1),
            block_size_ratio=lambda _: 1,
        ),
    )  # fmt: skip
    return worker


def steps_until_told(worker: Any, messages: Messages, row: int, *, registers: bool) -> int:
    """Of a write that is over before the first of them."""
    name = f"request-{row}"
    expected = SimpleNamespace(
        pp_size=1, remote=SimpleNamespace(engine_id="prefill"), local_physical_block_ids=[], region_blocks_to_zero=None
    )
    worker._recving_metadata = {name: expected}
    messages.waiting.append(f"{name}:1".encode())
    for step in range(1, 9):
        if registers:
            worker._reg_send_inbox.put((name, {}))
            worker._push_writer_wake.set()  # as `start_load_kv` does
            time.sleep(A_WHILE_S)  # the step is launched
        if name in worker.get_transfer_results().finished_recving:
            return step
        time.sleep(A_WHILE_S)
    return 0


def main() -> None:
    messages = Messages()
    worker = make_worker(messages)
    threading.Thread(target=worker._push_writer_loop, daemon=True).start()
    time.sleep(10 * A_WHILE_S)
    for registers in (False, True):
        found = Counter(steps_until_told(worker, messages, row, registers=registers) for row in range(100))
        print(json.dumps({"registers": registers, "steps": found}), flush=True)


if __name__ == "__main__":
    main()
