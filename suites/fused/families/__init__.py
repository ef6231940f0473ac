"""torch_npu's own operators by family, each with what it computes, written with plain torch."""
