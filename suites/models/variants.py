"""Variants of a model run without goldens: batch sizes, layouts, modes and dtypes, as a table.

All pairs of batch size, dtype, layout and train or eval occur, not all combinations. Their references are computed on
the CPU during the test: stored, they would take a few megabytes each.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ascend.records.case import Case
from pytest_ascend.system.bundled import beside

#: The properties of a variant, all from one forward and backward pass.
ASPECTS = ("forward", "loss", "layers", "gradients")


def case_of(model: str, mode: str, *words: str, aspect: str, level: str = "full") -> Case:
    """Return the case of one aspect of a model in a mode; its name begins with these words."""
    autocast, dtype = mode.rpartition("-")[::2]
    name = "-".join(filter(None, (*words, autocast, aspect)))
    return Case(suite="models", subject=model, property=name, dtype=dtype, family=model, level=level)


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration of a model run. ``mode`` is one of ``passing.MODES``."""

    model: str
    mode: str
    batch: int
    training: bool
    channels_last: bool

    def case(self, aspect: str) -> Case:
        layout, mode = "channels-last" if self.channels_last else "", "train" if self.training else "eval"
        return case_of(self.model, self.mode, mode, f"batch-{self.batch}", layout, aspect=aspect)


#: Model -> mode, batch, training mode, channels-last. ViT-B/16 takes four times as long: each dtype, up to four images.
ROWS: dict[str, list[tuple[str, int, bool, bool]]] = beside(__file__, "variants.json")
VARIANTS = tuple(Variant(model, *row) for model, rows in ROWS.items() for row in rows)

#: A case -> its variant, and the aspect that it tests.
VARIANT_OF = {variant.case(aspect): (variant, aspect) for variant in VARIANTS for aspect in ASPECTS}


#: Cases that judge every module separately, by model and mode: each takes as long as six variants.
_ALONE = ("resnet50", "float32"), ("vit_b_16", "autocast-bfloat16")
ALONE = {case_of(*each, aspect="layers-alone"): each for each in _ALONE}
