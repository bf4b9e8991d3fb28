"""The sharded MoE engine: scheduler, model, kernels, parallel plans and the emulated cluster."""
