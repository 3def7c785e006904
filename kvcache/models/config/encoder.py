"""The widths of one image encoder."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from files.documents import ReadJson
from files.schema import typed
from kvcache.models.config.fields import Positive, Size

Config = ReadJson
Ratio = Annotated[float, Meta(ge=0, le=1000, description="a number from 0 to 1,000")]
Sides = Annotated[list[Positive], Meta(min_length=2, max_length=2, description="two whole numbers from 1")]


class Encoder:
    """Widths of one encoder, looked up under each of their spellings."""

    def __init__(self, config: Config, vision: Config) -> None:
        self.config, self.vision = config, vision
        text = config.get("text_config", config.get("llm_config"))
        self.text: Config = text if isinstance(text, Mapping) else {}
        self.width = self.size("hidden_size", "vt_hidden_size", "width")
        ratio = typed(vision.get("mlp_ratio", 0.0), Ratio, "vision_config", "mlp_ratio")
        by_ratio = int(self.width * ratio) if ratio else None
        self.inner = self.size("intermediate_size", "vt_intermediate_size", default=by_ratio)
        self.depth = self.size("num_hidden_layers", "vt_num_hidden_layers", "depth", "layers")
        self.patch = self.size("patch_size", default=14)

    def size(self, *keys: str, default: int | None = None) -> int:
        """A width or count of the encoder."""
        value = next((self.vision[key] for key in keys if self.vision.get(key) is not None), default)
        if isinstance(value, list | tuple) and len(set(map(str, value))) == 1:  # a height and a width
            value = value[0]
        kind = Positive if keys[0] == "patch_size" else Size
        width: int = typed(value, kind, "vision_config", keys[0])
        return width

    @property
    def text_width(self) -> int:
        """The text model's hidden size, which the projector ends in."""
        width = self.text.get("hidden_size", self.config.get("hidden_size", 0))
        return typed(width, Size, "text_config", "hidden_size")

    @property
    def patches(self) -> int:
        """Pieces of one image of the configured size."""
        return (self.size("image_size", default=224) // self.patch) ** 2

    @property
    def patch_pixels(self) -> int:
        """Values in one piece: three colours."""
        return self.size("num_channels", default=3) * self.patch**2

    @property
    def layers(self) -> int:
        """Transformer layers with biases, a plain MLP, two LayerNorms."""
        attention = 4 * (self.width * self.width + self.width)
        mlp = 2 * self.width * self.inner + self.inner + self.width
        return self.depth * (attention + mlp + 4 * self.width)

    def merged_patches(self, kernel: object) -> int:
        """Width of neighbouring pieces side by side."""
        height, width = typed([kernel] * 2 if isinstance(kernel, int) else kernel, Sides, "vision_config", "merge size")
        return self.width * height * width
