"""Scripts that another interpreter runs, with vLLM, SGLang or transformers."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
