"""Speed and accuracy of Headcount, and how the constants that it ships are made.

Run them from the repository's root: `python -m validation.NAME --help`.

* core_speed, memory_speed: how fast it is. No data needed.
* accuracy: latencies and memory beside public measurements; writes the tables of docs/measurements.
* cpu_vllm: how well a recording of a real vLLM predicts other traffic. Needs a vLLM, no GPU.
* worked_examples: claims of memory guides, recomputed; writes the tables of docs/measurements/worked-examples.md.
* sampling, screening, large_fleets: how far off intervals, estimates and the law of large fleets are. No data needed,
  apart from sampling's case of a trace.
* pages: tables of docs that come from the code.
* constants: kernel_tables, step_times and memory fit what the product ships.

`--data DIR` names the folder of public measurements, which is not part of the repository.
"""
