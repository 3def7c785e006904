"""How many pages of KV cache are free; which ones decides nothing."""


class KVPool:
    """SGLang's token-to-KV pool, in counts of pages."""

    def __init__(self, num_tokens: int, page_size: int) -> None:
        self.page_size = page_size
        self.num_pages = self.num_free_pages = num_tokens // page_size

    @property
    def available_size(self) -> int:
        """Free tokens."""
        return self.num_free_pages * self.page_size

    def pages_of(self, start: int, end: int) -> int:
        """Pages that a sequence adds when it grows from `start` to `end` tokens."""
        return -(-end // self.page_size) - -(-start // self.page_size)

    def take(self, num_pages: int) -> bool:
        """Whether so many were free; then they are taken."""
        if num_pages > self.num_free_pages:
            return False
        self.num_free_pages -= num_pages
        return True

    def free(self, num_pages: int) -> None:
        """Give pages back."""
        self.num_free_pages += num_pages
        assert num_pages >= 0 and self.num_free_pages <= self.num_pages, "a page was freed twice"
