"""What a model makes on a device against what it makes on the CPU: outputs, gradients, layers, training."""
