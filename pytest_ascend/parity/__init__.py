"""A model's results on a device against those on the CPU: outputs, gradients, layers, training."""
