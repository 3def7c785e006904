"""TTFT against the rate of requests: where one GPU leaves the flat part of the curve."""

import headcount as hc

print("requests/s  TTFT p50  TTFT p95  TPOT p50")
for rate in (8, 16, 24, 28, 32):
    answer = hc.simulate("llama-3.1-8b", "h100-sxm", rate=rate, input_len=1000, output_len=200, num_requests=2000)
    found = answer.to_json()
    ttft, tpot = found["ttft_s"], found["tpot_s"]
    print(f"{rate:10}  {ttft['p50'] * 1e3:5.0f} ms  {ttft['p95'] * 1e3:5.0f} ms  {tpot['p50'] * 1e3:5.1f} ms")
