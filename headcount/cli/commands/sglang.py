"""`headcount sglang`: interpreters with a real SGLang."""

from headcount.cli.interpreter_group import interpreter_group

command = interpreter_group("sglang", "SGLang")
