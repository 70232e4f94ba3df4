"""Attention of one forward over the keys that the cache holds."""

# ruff: noqa: N803, N806 - shape suffixes in names; the legend is below

import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor


# H = heads of this rank, T = tokens of this forward, S = valid slots of the cache, D = head width
def attend(q_HTD: Tensor, k_HSD: Tensor, v_HSD: Tensor) -> Tensor:
    """Attention of every token over all S keys, whatever their order.

    Returns: out_HTD in the dtype of `q_HTD`; computed in the dtype of the cache.
    """
    out_HTD = F.scaled_dot_product_attention(q_HTD.to(k_HSD.dtype)[None], k_HSD[None], v_HSD[None])
    return out_HTD[0].to(q_HTD.dtype)
