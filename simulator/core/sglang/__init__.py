"""SGLang's scheduler and radix tree, compiled: the twin of `simulator.engines.sglang`."""
