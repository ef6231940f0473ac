"""A model's results on a device compared with the CPU's: outputs, gradients, layers, training."""
