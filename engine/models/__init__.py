"""The models: weights as fused tensors, and the forward pass of the layers that a rank holds."""
