"""The contact kit: what one machine with an NPU is like, asked in ten minutes, and turned into data of the project."""
