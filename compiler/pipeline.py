"""The passes every model goes through, in order, with a reason wherever the order matters."""

from __future__ import annotations

from collections.abc import Container

import tvm

from tilewright.passes.cancel_permutes import cancel_permutes
from tilewright.passes.canonicalise import canonicalise
from tilewright.passes.convert_layout import convert_layout
from tilewright.passes.decompose import decompose
from tilewright.passes.fold_batch_norm import fold_batch_norm
from tilewright.passes.fold_permute_into_weights import fold_permute_into_weights
from tilewright.passes.recognise_quantized import recognise_quantized
from tilewright.passes.sink_permutes import sink_permutes
from tilewright.passes.widen_conv1d import widen_conv1d

# Without these a model still compiles, only worse: `tilewright compare --bisect` leaves them out.
OPTIONAL_PASSES = (
    "fold_batch_norm",
    "recognise_quantized",
    "sink_permutes",
    "cancel_permutes",
    "fold_permute_into_weights",
    "pad_channels",
)


def graph_passes(left_out: Container[str] = ()) -> list[tvm.transform.Pass]:
    """From an imported graph to one in NHWC with quantised operators, whatever the target."""
    passes = [
        # One spelling for each thing, so that every later pattern has one form to match.
        canonicalise,
        # Before recognition: a folded batch norm leaves the conv alone between its Q and DQ.
        fold_batch_norm,
        # After folding, which knows sequences; from here on there are images only.
        widen_conv1d,
        # Before layouts change: a quantised operator is then one node, not ten.
        recognise_quantized,
        # After recognition, which matches the operators as users write them.
        decompose,
        convert_layout,
        # Conversion leaves permutes around every image operator; they meet and vanish.
        sink_permutes,
        cancel_permutes,
        # What is left before a dense layer, its weights can take over.
        fold_permute_into_weights,
    ]
    return [one for one in passes if one.info.name not in left_out]
