"""`headcount vllm`: interpreters with a real vLLM."""

from headcount.cli.interpreter_group import interpreter_group
from kvcache.releases import DEFAULT_RELEASE

command = interpreter_group("vllm", "vLLM", DEFAULT_RELEASE)
