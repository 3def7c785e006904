"""A small trace of every format, written for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.workloads.trace_files import AZURE, mooncake


def lines(*objects: dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in objects)


def dynamo(received_ms: int, prompt: int, output: int, hashes: list[int], **more: Any) -> dict[str, Any]:
    replay = {"trace_block_size": 16, "input_length": prompt, "input_sequence_hashes": hashes}
    request = {"request_received_ms": received_ms, "input_tokens": prompt, "output_tokens": output, "replay": replay}
    event = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": request | more}
    return {"timestamp": 1, "event": {**event, "agent_context": {"session_id": "a"}}}


def span(start: str, prompt: int | None, output: int, trace: str = "t1") -> dict[str, Any]:
    usage = {} if prompt is None else {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": output}
    return {"trace_id": trace, "start_time": start, "attributes": {"gen_ai.operation.name": "chat", **usage}}


def round_(index: int, sent: str, ended: str, prompt: int, output: int) -> dict[str, Any]:
    events = [{"event_type": "user_message", "timestamp": sent}, {"event_type": "text", "timestamp": ended}]
    tokens = {"input_tokens_total": prompt, "prefix_tokens": 10, "output_tokens": output}
    return {"session_id": "a", "round_index": index, **tokens, "timing_events": events}


def batched(prompt: int, output: int, status: int = 200, name: str = "c") -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": output}
    return {"custom_id": name, "response": {"status_code": status, "body": {"usage": usage}}, "error": None}


BLIS_NAMES = (
    "request_id,client_id,tenant_id,slo_class,vllm_priority,session_id,round_index,prefix_group,prefix_length,streaming,"
    "input_tokens,output_tokens,server_input_tokens,arrival_time_us,status,error_message,think_time_us"
)


@dataclass(frozen=True)
class Example:
    """A right file, and what its table must be."""

    text: str
    arrival_s: list[float | None]
    prompt: list[int]
    output: list[int]
    follows: list[int] | None = None
    think_s: list[float] | None = None
    priority: list[int] | None = None
    shared: tuple[int, int, int] | None = None
    """Two rows, and how many of their first tokens are the same."""
    note: str = ""


EXAMPLES = {
    "azure": Example(AZURE, [0, 2.5, 60.1], [300, 4000, 7], [40, 1, 1000], shared=(0, 1, 0)),
    "burstgpt": Example(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "100.0,s1,43,GPT-4,906,446,1352,Conversation log\n101.0,,2,ChatGPT,36,0,36,API log\n"
        "120.5,s1,8,GPT-4,1400,123,1523,Conversation log\n121.0,,1,GPT-4,5,6,11,API log\n",
        [0, 20.5, 21],
        [906, 1400, 5],
        [446, 123, 6],
        shared=(0, 1, 1352),
        note="left out of the trace: 1 failed requests (0 tokens)",
    ),
    "mooncake": Example(
        lines(mooncake(3000, 600, 5, [4, 7]), mooncake(1500, 512, 6, [4])),
        [3, 1.5], [600, 512], [5, 6], shared=(0, 1, 512),
    ),
    "bailian": Example(
        lines(
            {"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 20, "output_length": 9,
             "type": "text", "turn": 1, "hash_ids": [1, 2]},
            {"chat_id": 2, "parent_chat_id": 1, "timestamp": 64.0, "input_length": 40, "output_length": 3,
             "type": "text", "turn": 2, "hash_ids": [1, 3, 4]},
        ),
        [0, 2.5], [20, 40], [9, 3], shared=(0, 1, 29),
    ),
    "ragpulse": Example(
        lines(*(
            {"timestamp": time, "input_length": 3112, "output_length": 192, "session_id": "s",
             "hash_ids": {"sys_prompt": [1], "passages_ids": [], "history": [], "web_search": [], "user_input": [2]}}
            for time in ("82", "93", "90")
        )) + "\n",
        [0, 11, 8], [3112] * 3, [192] * 3, note="share nothing",
    ),
    "weka": Example(
        lines({
            "id": "x", "block_size": 64, "hash_id_scope": "local", "requests": [
                {"t": 0.0, "type": "n", "in": 130, "out": 10, "hash_ids": [1, 2], "think_time": 0.0},
                {"t": 3.0, "type": "subagent",
                 "requests": [{"t": 0.5, "type": "n", "in": 70, "out": 4, "hash_ids": [1]}]},
                {"t": 9.0, "type": "s", "in": 200, "out": 7, "hash_ids": [1, 2, 3], "think_time": 4.0},
            ],
        }),
        [0, 3.5, None], [130, 70, 200], [10, 4, 7], [-1, -1, 0], [0, 0, 4], shared=(0, 2, 140),
    ),
    "vidur": Example(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,374,44\n4.5,396,109\n", [0, 4], [374, 396], [44, 109]
    ),
    "llmservingsim": Example(
        lines(
            {"session_id": "a", "arrival_time_ns": 2_000_000_000, "sub_requests": [
                {"input_toks": 30, "output_toks": 5, "tool_duration_ns": 250_000_000},
                {"input_toks": 50, "output_toks": 6, "tool_duration_ns": 0}]},
            {"input_toks": 20, "output_toks": 8, "arrival_time_ns": 3_500_000_000, "input_tok_ids": list(range(20))},
        ),
        [0, None, 1.5], [30, 50, 20], [5, 6, 8], [-1, 0, -1], [0, 0.25, 0], shared=(0, 1, 35),
    ),
    "tracelab": Example(
        lines(round_(0, "2026-06-01T05:40:20.000Z", "2026-06-01T05:40:30.000Z", 100, 20),
              round_(1, "2026-06-01T05:40:32.500Z", "2026-06-01T05:40:40.000Z", 140, 5)),
        [0, None], [100, 140], [20, 5], [-1, 0], [0, 2.5], shared=(0, 1, 120),
    ),
    "tracelab_replay": Example(
        "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n"
        "0,117,0,0,2318,200,300\n0,117,1,2518,348,131,154\n1,118,0,0,5,6,0\n",
        [0, None, 1], [2318, 2866, 5], [200, 131, 6], [-1, 0, -1], [0, 0.3, 0], shared=(0, 1, 2518),
    ),
    "dynamo": Example(
        lines(dynamo(1_779_163_000_000, 20, 9, [2**63 + 5]),
              {"event": {"schema": "dynamo.request.trace.v1", "event_type": "tool_start"}},
              dynamo(1_779_163_002_500, 40, 3, [2**63 + 5, 7]),
              dynamo(1_779_163_002_600, 40, 0, [], error="cancelled")),
        [0, 2.5], [20, 40], [9, 3], shared=(0, 1, 29), note="left out of the trace: 1 requests that failed",
    ),
    "blis": Example(
        f"{BLIS_NAMES}\n"
        '0,c,t,critical,3,s,0,g,32,true,100,20,0,2000000,ok,"none, none",0\n'
        "1,c,t,critical,0,,0,g,32,true,50,5,0,2500000,ok,,0\n"
        "2,c,t,critical,0,s,1,,0,true,160,5,0,3000000,ok,,1500000\n"
        "3,c,t,critical,0,,0,,0,true,160,5,0,3000000,timeout,late,0\n",
        [0, 0.5, None], [132, 82, 160], [20, 5, 5], [-1, -1, 0], [0, 0, 1.5], [3, 0, 0], (0, 1, 32),
        "left out of the trace: 1 requests that failed",
    ),
    "otel": Example(
        json.dumps({"spans": [span("2026-02-25T10:00:03.500000", 40, 5), span("2026-02-25T10:00:00.000000", 20, 9),
                              span("2026-02-25T10:00:09.000000", None, 5)]}, indent=1),
        [0, 3.5], [20, 40], [9, 5], shared=(0, 1, 29), note="left out of the trace: 1 spans without token counts",
    ),
    "openai_batch": Example(
        lines(batched(30, 4), batched(0, 0, 500, "d"), batched(50, 6, name="e")),
        [0, 0], [30, 50], [4, 6], note="all requests arrive at once",
    ),
    "genai_perf": Example(
        lines({"session_id": "a", "delay": 0, "input_length": 10, "output_length": 5},
              {"session_id": "b", "delay": 0, "input_length": 7, "output_length": 5},
              {"session_id": "a", "delay": 1500, "input_length": 20, "output_length": 5}),
        [0, 0, None], [10, 7, 35], [5, 5, 5], [-1, -1, 0], [0, 0, 1.5], shared=(0, 2, 15),
    ),
}  # fmt: skip
