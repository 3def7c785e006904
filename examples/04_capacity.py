"""Users per GPU count from Python: the same answer as `headcount capacity`."""

import headcount as hc

answer = hc.capacity("llama-3.1-8b", "h100-sxm", gpus=[1], ttft_s=1.0, tpot_s=0.05)
print(answer)
print(f"sign for {answer.users_low} users; {answer.binding} binds")
for note in answer.diagnostics:
    print(f"{note.severity}: {note.text}")
