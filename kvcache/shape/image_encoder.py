"""What an image encoder computes, as far as time depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EncoderMultiply:
    """`count` matrices of `rows` × `cols`, each for one in `patches` of the image's patches."""

    rows: int
    cols: int
    count: int = 1
    patches: int = 1  # neighbours that are one row: 4 where a projector takes two by two
    in_layers: bool = True  # False: before or behind the layers


@dataclass(frozen=True, kw_only=True)
class ImageEncoder:
    """A transformer over patches, of which each attends to all of its image or tile, in some layers to a window."""

    multiplies: tuple[EncoderMultiply, ...]
    depth: int
    width: int
    num_heads: int
    windowed_layers: int = 0
    window: int = 0  # patches

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.width // self.num_heads

    @property
    def parameters(self) -> int:
        """Elements of all matrices."""
        return sum(each.rows * each.cols * each.count for each in self.multiplies)
