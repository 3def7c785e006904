"""400 people chat with an 8B model on one H100: the latencies they see, and where the time of the slowest went."""

import headcount as hc

answer = hc.simulate("llama-3.1-8b", "h100-sxm", workload="chat", users=400)
print(answer)
