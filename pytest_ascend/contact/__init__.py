"""The contact kit: ten minutes of measurements on one machine with an NPU, turned into data of the project."""
