"""The passes every model goes through, in order, with a reason wherever the order matters."""

from __future__ import annotations

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


def graph_passes() -> list[tvm.transform.Pass]:
    """From an imported graph to one in NHWC with quantised operators, whatever the target."""
    return [
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
