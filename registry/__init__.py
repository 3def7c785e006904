"""Things that are found by name: GPUs, models, formats, presets, readers, routers, one file each."""
