"""Run by the interpreter of an engine: measures each line of a file of cases, and prints a line for each."""

import json
import sys


def print_each(measure):
    with open(sys.argv[1], encoding="utf-8") as cases:
        for text in cases:
            print(json.dumps(measure(json.loads(text))), flush=True)
