"""The matrices that a rank holds, as far as bytes depend on them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tensor:
    """`count` equal matrices of `rows` × `cols` elements; a vector has one column.

    Matrices that vLLM fuses (q with k and v, gate with up) are one; `stacked` ones share one allocation.
    """

    component: str
    rows: int
    cols: int = 1
    count: int = 1
    quantizable: bool = False  # a linear layer that weight formats may pack
    stacked: bool = False
    cols_split: bool = False  # by tensor parallelism, so that a rank's columns must hold whole blocks
    element_bytes: int = 0  # where vLLM keeps it in fp32 whatever the model's dtype; 0: the model's dtype
    part: str = ""  # which of its component's modules it is: a key of config/modules.toml
    format: str | None = None  # the weight format the checkpoint gives it; None: the model's, "none": 16 bits
    repeated_rows: int = 0  # rows that vLLM fills from others of the checkpoint (keys that serve as values)

    @property
    def elements(self) -> int:
        """Elements in all of them."""
        return self.rows * self.cols * self.count

    @property
    def parameters(self) -> int:
        """Elements that a checkpoint holds."""
        return (self.rows - self.repeated_rows) * self.cols * self.count


@dataclass(frozen=True, kw_only=True)
class ExtraTensor:
    """A whole matrix that one model family has beside what every decoder has.

    `split`: the side that tensor parallelism divides, None where every rank holds it whole.
    """

    component: str
    rows: int
    cols: int = 1
    count: int = 1
    place: str = "layer"  # every "layer" or "moe_layer"; or the "first", "last" or "every" pipeline stage
    split: str | None = None  # "rows" or "cols"
    vocabulary: bool = False  # rows are padded as the embedding's
    quantizable: bool = False
    element_bytes: int = 0
