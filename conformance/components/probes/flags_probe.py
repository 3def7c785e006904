"""Every flag that an engine's server takes. Run by an interpreter that has vLLM or SGLang."""

import argparse
import json
import sys
from importlib import import_module

PARSERS = (  # of 0.33, of 0.31 and 0.32, and before
    "vllm.entrypoints.common.cli_args", "vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args",
)  # fmt: skip


def vllm_parser():
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    for name in PARSERS:
        try:
            return import_module(name).make_arg_parser(parser)
        except ModuleNotFoundError:
            continue
    raise SystemExit("no argument parser of vLLM's server was found")


def sglang_parser():
    parser = argparse.ArgumentParser()
    import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.loads(file.readline())
    engine = case["name"]
    parser = vllm_parser() if engine == "vllm" else sglang_parser()
    flags = sorted({flag for action in parser._actions for flag in action.option_strings})
    print(json.dumps({"name": engine, "version": import_module(engine).__version__, "flags": flags}))


if __name__ == "__main__":
    main()
