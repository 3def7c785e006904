"""The compiled core: what `simulator.engines.vllm.scheduler` decides, fast."""
