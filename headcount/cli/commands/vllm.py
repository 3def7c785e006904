"""`headcount vllm`: interpreters with a real vLLM."""

from headcount.cli.interpreter_group import interpreter_group

command = interpreter_group("vllm", "vLLM")
