"""A few random nodes of language models compared with onnxruntime; the slow tests run thousands."""

from __future__ import annotations

import pytest
from check_language import NotJudged, check
from choices import Choices
from language_operators import OPERATORS, draw_case


@pytest.mark.parametrize("kind", range(len(OPERATORS)))
def test_random_nodes(kind):
    for attempt in range(10):
        try:
            results, _ = check([kind], f"{kind} {attempt}")
        except NotJudged:
            continue
        assert sum(results.values()) >= 1
        return
    pytest.fail("onnxruntime runs none of ten nodes")


def test_every_operator_is_drawn():
    drawn = {draw_case(Choices([kind])).operator for kind in range(len(OPERATORS))}
    assert drawn >= {"MatMulNBits", "GatherBlockQuantized", "GroupQueryAttention", "MultiHeadAttention", "Attention"}
