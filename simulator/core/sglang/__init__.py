"""SGLang's scheduler and radix tree, compiled: as in `simulator.engines.sglang`."""
