"""The compiled core: what the engines' schedulers decide, fast, and the event loop over all of them."""
