"""What the operating system gives, taken with care: bounded files, programs that may hang, sizes."""
