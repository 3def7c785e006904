"""`headcount sglang`: interpreters with a real SGLang."""

from calibrate.interpreters.recipe import SGLANG
from headcount.cli.interpreter_group import interpreter_group

command = interpreter_group("sglang", "SGLang", SGLANG.example)
