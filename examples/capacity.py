"""Users per GPU count from Python: the same answer as `headcount capacity`."""

from headcount import SLO, CapacityQuestion, capacity_rows, find_gpu, load_model, load_workload

chat = load_workload("chat")
question = CapacityQuestion(
    architecture=load_model("llama-3.1-8b"),
    gpu=find_gpu("h100-sxm"),
    gpus=(1,),
    workload=chat,
    think_time_s=chat.think_time_s.mean(),
    slo=SLO(ttft_s=1.0, tpot_s=0.05, attainment=0.95),
)
for row in capacity_rows(question):
    print(f"{row.gpus} GPU: {row.users_low} to {row.users_high} users, {row.users} on average; {row.binding}")
