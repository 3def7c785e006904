"""How many pages of KV cache are free; which ones decides nothing."""


class ServerEndsError(RuntimeError):
    """SGLang's own server ends there, too."""


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
        """Give pages back. Raises ServerEndsError for those that were free.

        `shortest-prefill-first` may take a prompt that it has cut to be whole, which then decodes and gives up windows
        that it never had.
        """
        assert num_pages >= 0, "pages are given back, not taken"
        self.num_free_pages += num_pages
        if self.num_free_pages > self.num_pages:
            raise ServerEndsError("a page was freed twice")
