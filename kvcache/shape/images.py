"""How many tokens an image becomes, by the rule of each family's own processor."""

import math
from dataclasses import dataclass
from typing import Protocol

from files.errors import HeadcountError

MOST_PIXELS = 65_536  # of a side
MOST_ASPECT = 200  # longer side over shorter, which Qwen's and GLM's processors take


@dataclass(frozen=True, kw_only=True)
class ImageTokens:
    """One image in a prompt, in tokens, and in the encoder, in patches.

    vLLM's scheduler sees `length` tokens, of which [first, last) hold the encoder's output: `embeddings` of them, what
    the encoder's budget and cache count. The tokens before and after are the chat template's marks.
    """

    before: int = 0
    length: int
    after: int = 0
    first: int = 0
    last: int
    embeddings: int
    patches: int  # rows of the encoder's matrix multiplies
    attended: int  # patches that each of them attends to, where a layer has no window

    @property
    def tokens(self) -> int:
        """Of the prompt."""
        return self.before + self.length + self.after


class ImageRule(Protocol):
    """What a processor makes of an image."""

    def of(self, width: int, height: int) -> ImageTokens:
        """Of an image of so many pixels. Raises HeadcountError for a size that the processor refuses."""
        ...

    @property
    def largest(self) -> int:
        """Embeddings of the largest image: vLLM's encoder budget and cache are no smaller."""
        ...


def check_size(width: int, height: int) -> None:
    """Raise HeadcountError for a side out of range."""
    for name, side in (("width", width), ("height", height)):
        if not 1 <= side <= MOST_PIXELS:
            raise HeadcountError(f"image {name} {side:,}; give 1 to {MOST_PIXELS:,} pixels, such as 1280x960")


@dataclass(frozen=True, kw_only=True)
class SmartResize:
    """Both sides to multiples of a unit, the area within limits: transformers' `smart_resize` of Qwen2-VL, GLM-4V.

    Neighbouring patches are merged. `marks` stand before and after the image: <|vision_start|>, <|vision_end|>.
    """

    patch: int  # pixels of a side
    merge: int  # patches of a side of the square that one token stands for
    min_pixels: int
    max_pixels: int
    marks: tuple[int, int] = (1, 1)
    video_frames: int = 0  # of the longest video that vLLM profiles, two of which become one; 0: none is longer
    enlarges_narrow: bool = False  # GLM: a side shorter than a unit becomes one, before anything else

    def of(self, width: int, height: int) -> ImageTokens:
        check_size(width, height)
        unit = self.patch * self.merge
        if self.enlarges_narrow and min(width, height) < unit:
            scale = max(unit / height, unit / width)
            width, height = int(width * scale), int(height * scale)
        if max(width, height) > MOST_ASPECT * min(width, height):
            raise HeadcountError(
                f"image {width}x{height}: this model's processor refuses a side more than {MOST_ASPECT} times as long "
                "as the other; give a less narrow image"
            )
        rows, columns = (round(side / unit) for side in (height, width))
        area = rows * columns * unit * unit
        if area > self.max_pixels:
            shrink = math.sqrt(height * width / self.max_pixels)
            rows, columns = (max(1, math.floor(side / shrink / unit)) for side in (height, width))
        elif area < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            rows, columns = (math.ceil(side * grow / unit) for side in (height, width))
        return _plain(rows * columns, patches=rows * columns * self.merge**2, marks=self.marks)

    @property
    def largest(self) -> int:
        return self.max_pixels // (self.patch * self.merge) ** 2

    def largest_video(self, max_model_len: int) -> int:
        """Embeddings of the longest video in a context of so many tokens; 0 where none has more than an image."""
        pairs = min(self.video_frames // 2, max_model_len // self.largest)
        return max(pairs, 1) * self.largest if self.video_frames else 0


@dataclass(frozen=True, kw_only=True)
class FixedSize:
    """Every image is resized to one size: Gemma 3 without pan and scan, LLaVA-1.5."""

    embeddings: int
    patches: int
    marks: tuple[int, int] = (0, 0)  # within the placeholder

    def of(self, width: int, height: int) -> ImageTokens:
        check_size(width, height)
        before, after = self.marks
        return ImageTokens(
            length=before + self.embeddings + after,
            first=before,
            last=before + self.embeddings,
            embeddings=self.embeddings,
            patches=self.patches,
            attended=self.patches,
        )

    @property
    def largest(self) -> int:
        return self.embeddings


@dataclass(frozen=True, kw_only=True)
class ClosestRatio:
    """Up to so many square tiles in the grid of the closest ratio, and a thumbnail beside several: InternVL."""

    tile: int  # pixels of a side
    tile_patches: int
    tile_tokens: int
    max_tiles: int
    thumbnail: bool = True

    def of(self, width: int, height: int) -> ImageTokens:
        check_size(width, height)
        tiles = self._tiles(width, height)
        tiles += self.thumbnail and tiles > 1
        count = tiles * self.tile_tokens
        return ImageTokens(
            length=count + 2,
            first=1,
            last=count + 1,
            embeddings=count,
            patches=tiles * self.tile_patches,
            attended=self.tile_patches,
        )

    def _tiles(self, width: int, height: int) -> int:
        """Of grids whose ratio is equally close, the larger one if the image fills more than half of it."""
        sides = range(1, self.max_tiles + 1)
        grids = sorted((across * down, across, down) for across in sides for down in sides)
        best, least = 1, math.inf
        for tiles, across, down in grids:
            if tiles > self.max_tiles:
                break
            off = abs(width / height - across / down)
            if off < least or (off == least and width * height > 0.5 * self.tile**2 * tiles):
                best, least = tiles, off
        return best

    @property
    def largest(self) -> int:
        return (self.max_tiles + (self.thumbnail and self.max_tiles > 1)) * self.tile_tokens


@dataclass(frozen=True, kw_only=True)
class BestCanvas:
    """The grid of square tiles that an image fits with the least change of scale, and a small whole: Llama 4."""

    tile: int  # pixels of a side
    tile_patches: int
    tile_tokens: int
    max_tiles: int

    def of(self, width: int, height: int) -> ImageTokens:
        check_size(width, height)
        down, across = self._canvas(width, height)
        tiles = down * across
        count = tiles + (tiles > 1)
        separators = tiles if tiles > 1 else 0  # one behind each tile: of columns, or of rows
        return ImageTokens(
            length=count * self.tile_tokens + separators + 3,  # start, the small whole's own mark, end
            first=1 if tiles > 1 else 2,
            last=count * self.tile_tokens + separators + 2,
            embeddings=count * self.tile_tokens,
            patches=count * self.tile_patches,
            attended=self.tile_patches,
        )

    def _canvas(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns: the least enlargement where one is enough, else the least reduction; then the smallest."""
        sides = range(1, self.max_tiles + 1)
        grids = [(down, across) for down in sides for across in sides if down * across <= self.max_tiles]
        scales = {(down, across): min(down * self.tile / height, across * self.tile / width) for down, across in grids}
        enlarging = [scale for scale in scales.values() if scale >= 1]
        chosen = min(enlarging) if enlarging else max(scales.values())
        return min((grid for grid in grids if scales[grid] == chosen), key=lambda grid: grid[0] * grid[1])

    @property
    def largest(self) -> int:
        return (self.max_tiles + 1) * self.tile_tokens


@dataclass(frozen=True, kw_only=True)
class RowsWithBreaks:
    """At most so long, kept in ratio, padded to whole squares, a token behind every row of them: Pixtral, Mistral."""

    patch: int
    merge: int
    longest_edge: int

    def of(self, width: int, height: int) -> ImageTokens:
        check_size(width, height)
        unit, ratio = self.patch * self.merge, max(width, height) / self.longest_edge
        if ratio > 1:
            width, height = max(math.floor(width / ratio), 1), max(math.floor(height / ratio), 1)
        columns, rows = (math.ceil(side / unit) for side in (width, height))
        length, patches = rows * (columns + 1), rows * columns * self.merge**2
        return ImageTokens(length=length, last=length - 1, embeddings=rows * columns, patches=patches, attended=patches)

    @property
    def largest(self) -> int:
        return math.ceil(self.longest_edge / (self.patch * self.merge)) ** 2


@dataclass(frozen=True, kw_only=True)
class PaddedPatches:
    """Reduced to so many patches, padded to whole squares of them: Kimi-VL."""

    patch: int
    merge: int
    max_patches: int
    marks: tuple[int, int]

    def of(self, width: int, height: int) -> ImageTokens:
        check_size(width, height)
        count = (width // self.patch) * (height // self.patch)
        if count > self.max_patches:
            scale = math.sqrt(self.max_patches / count)
            width, height = max(int(width * scale), 1), max(int(height * scale), 1)
        rows, columns = (math.ceil(side / (self.patch * self.merge)) for side in (height, width))
        return _plain(rows * columns, patches=rows * columns * self.merge**2, marks=self.marks)

    @property
    def largest(self) -> int:
        """Of vLLM's profile image, 1024 x 1024."""
        return self.of(1024, 1024).embeddings


def _plain(count: int, *, patches: int, marks: tuple[int, int]) -> ImageTokens:
    before, after = marks
    return ImageTokens(
        before=before, length=count, after=after, last=count, embeddings=count, patches=patches, attended=patches
    )
