"""The cases of the model suite: one for each model, property and mode."""

from __future__ import annotations

from .variants import ALONE, VARIANT_OF, case_of

#: The properties of a model, in the order in which they are computed.
PROPERTIES = ("forward", "loss", "gradients", "training")

#: Model, mode (see ``computation.MODES``) and level of its cases. CPU kernels take ten times as long in float16.
RUNS = (
    ("resnet50", "float32", "standard"),
    ("resnet50", "autocast-bfloat16", "standard"),
    ("resnet50", "autocast-float16", "full"),
    ("vit_b_16", "float32", "standard"),
    ("vit_b_16", "autocast-bfloat16", "standard"),
)


#: Also in level smoke: generating the weights of a ViT takes three times as long as its forward pass.
_FIRST = ("resnet50", "float32", "forward")
#: The cases of a run, by model and mode.
CASES_OF_RUN = {
    (model, mode): tuple(
        case_of(model, mode, aspect=each, level="smoke" if (model, mode, each) == _FIRST else level)
        for each in PROPERTIES
    )
    for model, mode, level in RUNS
}
CASES = (*(case for cases in CASES_OF_RUN.values() for case in cases), *VARIANT_OF, *ALONE)
#: The properties of these runs, of variants, and of models judged module by module.
OF_RUNS = tuple(dict.fromkeys(case.property for cases in CASES_OF_RUN.values() for case in cases))
OF_VARIANTS = tuple(dict.fromkeys(case.property for case in VARIANT_OF))
OF_ALONE = tuple(case.property for case in ALONE)
