"""What in a program's source stops it from running on an NPU, or slows it down there, and what to use instead."""

from __future__ import annotations

from dataclasses import dataclass

#: Nothing runs; runs after a change or under transfer_to_npu; runs, but not as intended.
BLOCKER, CHANGE, ADVICE = "blocker", "change", "advice"

SEVERITIES = (BLOCKER, CHANGE, ADVICE)

_MIGRATION = "Ascend Extension for PyTorch: model migration guide"
_AFFINITY = "Ascend Extension for PyTorch: affinity libraries (torch_npu.contrib, torch_npu.optim)"
_TRANSFER = "torch_npu.contrib.transfer_to_npu, as installed"
_REFUSED = "torch_npu and CANN's dtype tables, as installed"


@dataclass(frozen=True, slots=True)
class Blocker:
    """A module, class or function by its full name, with its effect. ``name`` covers everything below it."""

    name: str
    severity: str
    says: str
    instead: str
    source: str = _MIGRATION


#: Full dotted names, however they are imported. The longest match counts.
NAMES = (
    Blocker(
        "torch.nn.DataParallel",
        BLOCKER,
        "DataParallel has no NPU implementation",
        "torch.nn.parallel.DistributedDataParallel with the backend hccl, one process a device",
    ),
    Blocker(
        "torch.nn.parallel.DataParallel",
        BLOCKER,
        "DataParallel has no NPU implementation",
        "torch.nn.parallel.DistributedDataParallel with the backend hccl, one process a device",
    ),
    Blocker(
        "torch.nn.parallel.data_parallel",
        BLOCKER,
        "data_parallel has no NPU implementation",
        "torch.nn.parallel.DistributedDataParallel with the backend hccl, one process a device",
    ),
    Blocker(
        "apex.optimizers",
        BLOCKER,
        "APEX's fused optimizers are CUDA kernels",
        "torch_npu.optim.NpuFusedAdam and its kin, or torch.optim with foreach",
        _AFFINITY,
    ),
    Blocker("apex.amp", CHANGE, "APEX needs its NPU build", "torch.amp.autocast and torch.amp.GradScaler"),
    Blocker(
        "apex",
        BLOCKER,
        "APEX is built for CUDA",
        "what torch has of it (torch.amp, DistributedDataParallel), or APEX for Ascend",
    ),
    Blocker(
        "bmtrain",
        BLOCKER,
        "bmtrain brings CUDA kernels of its own",
        "DeepSpeed or torch's FSDP, both of which run over hccl",
    ),
    Blocker(
        "bitsandbytes",
        BLOCKER,
        "bitsandbytes quantizes with CUDA kernels",
        "torch_npu's quantized operators (npu_quant_matmul), or bfloat16 without quantization",
    ),
    Blocker(
        "colossalai.nn.optimizer.HybridAdam",
        BLOCKER,
        "HybridAdam is a CUDA and CPU extension",
        "torch_npu.optim.NpuFusedAdam or torch.optim.AdamW",
    ),
    Blocker("colossalai", BLOCKER, "ColossalAI builds CUDA extensions", "DeepSpeed or torch's FSDP over hccl"),
    Blocker(
        "xformers",
        BLOCKER,
        "xFormers has CUDA kernels only",
        "torch.nn.functional.scaled_dot_product_attention or torch_npu.npu_fusion_attention",
    ),
    Blocker(
        "flash_attn",
        BLOCKER,
        "flash-attn has CUDA kernels only",
        "torch.nn.functional.scaled_dot_product_attention or torch_npu.npu_fusion_attention",
    ),
    Blocker(
        "grouped_gemm",
        BLOCKER,
        "grouped_gemm is a CUDA extension",
        "torch_npu.npu_grouped_matmul",
        "torch_npu's operators, as installed",
    ),
    Blocker("composer", BLOCKER, "Composer places models on CUDA by itself", "a training loop of torch, or Lightning"),
    Blocker(
        "transformer_engine",
        BLOCKER,
        "Transformer Engine is built for CUDA",
        "torch.nn layers under torch.amp, or MindSpeed's transformer engine",
    ),
    Blocker(
        "triton",
        CHANGE,
        "Triton kernels need Triton-Ascend, and mostly another tiling",
        "triton-ascend, or operators of torch and torch_npu",
    ),
    Blocker(
        "torch.utils.cpp_extension.CUDAExtension",
        BLOCKER,
        "a CUDA extension cannot be built for an NPU",
        "an operator of torch_npu, or an Ascend C kernel with torch_npu.utils.cpp_extension",
    ),
    Blocker(
        "torch.utils.cpp_extension.load",
        ADVICE,
        "an extension compiled at run time",
        "see that it has no CUDA source; torch_npu.utils.cpp_extension builds for an NPU",
    ),
    Blocker("pycuda", BLOCKER, "pycuda is CUDA", "operators of torch and torch_npu"),
    Blocker("cupy", BLOCKER, "cupy is CUDA", "torch tensors, or numpy on the host"),
    Blocker("pynvml", CHANGE, "NVIDIA's management library", "npu-smi, or torch_npu.npu memory functions"),
    Blocker("tensorrt", BLOCKER, "TensorRT is NVIDIA's", "ONNX export, then atc and an .om model"),
    Blocker("nvidia.dali", BLOCKER, "DALI decodes on NVIDIA GPUs", "torchvision transforms in a DataLoader"),
    Blocker(
        "torch.cuda.amp",
        CHANGE,
        "CUDA's autocast and GradScaler",
        "torch.amp.autocast('npu') and torch.amp.GradScaler('npu')",
        _TRANSFER,
    ),
    Blocker(
        "torch.cuda.CUDAGraph",
        CHANGE,
        "CUDA graphs",
        "torch_npu.npu.NPUGraph where the version has it, or no graph",
    ),
    Blocker("torch.cuda.nvtx", CHANGE, "NVIDIA's profiler marks", "torch_npu.npu.mstx, or torch_npu.profiler"),
    Blocker(
        "torch.cuda",
        CHANGE,
        "CUDA's own functions",
        "torch.npu, or import torch_npu.contrib.transfer_to_npu before",
        _TRANSFER,
    ),
    Blocker(
        "torch.backends.cuda",
        CHANGE,
        "a switch of CUDA without effect on an NPU",
        "torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32",
    ),
    Blocker(
        "torch.channels_last",
        CHANGE,
        "torch_npu takes no memory_format=torch.channels_last and raises",
        "leave it out: torch_npu chooses the layout of convolutions by itself",
        _REFUSED,
    ),
    Blocker(
        "torch.channels_last_3d",
        CHANGE,
        "torch_npu takes no memory_format=torch.channels_last_3d and raises",
        "leave it out: torch_npu chooses the layout of convolutions by itself",
        _REFUSED,
    ),
    Blocker(
        "deepspeed",
        CHANGE,
        "DeepSpeed needs its NPU accelerator; extensions that it builds for CUDA are missing",
        "import torch_npu first and see that ds_report names npu; torch.optim or torch_npu.optim for fused CUDA ops",
    ),
    Blocker("torch.backends.cudnn", ADVICE, "a switch of cuDNN without effect on an NPU", "leave it out"),
)

_NO_FLOAT64 = "NPUs have no products, convolutions or most functions in float64: they raise, or the CPU computes"

#: Methods that matter on an NPU on any object.
METHODS = {
    "double": Blocker("double", CHANGE, _NO_FLOAT64, "float32, or this step on the CPU", _REFUSED),
    "cuda": Blocker("cuda", CHANGE, "moves to CUDA", ".to(device) with a device that is chosen once", _TRANSFER),
    "is_cuda": Blocker("is_cuda", CHANGE, "is false for every NPU tensor", ".device.type, or .is_npu", _TRANSFER),
}

#: Keywords of calls with values that matter: how the value begins, as written in Python.
KEYWORDS = {
    ("load_in_4bit", "True"): Blocker(
        "load_in_4bit",
        BLOCKER,
        "bitsandbytes quantizes with CUDA kernels",
        "bfloat16, or torch_npu's quantized operators",
    ),
    ("load_in_8bit", "True"): Blocker(
        "load_in_8bit",
        BLOCKER,
        "bitsandbytes quantizes with CUDA kernels",
        "bfloat16, or torch_npu's quantized operators",
    ),
    ("mode", "'max-autotune"): Blocker(
        "max-autotune",
        CHANGE,
        "torch.compile tunes Triton kernels for CUDA in this mode",
        "torch.compile(backend=torchair.get_npu_backend()), or no compilation",
        _AFFINITY,
    ),
}

#: Strings that name a device or a backend, by their beginning, in arguments of a call or in comparisons.
STRINGS = {
    "cuda": Blocker("cuda", CHANGE, "a hard-coded CUDA device", "a device chosen once, as in 'npu:0'", _TRANSFER),
    "nccl": Blocker("nccl", CHANGE, "NVIDIA's collectives", "the backend hccl", _TRANSFER),
}
