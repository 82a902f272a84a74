"""Experts on several ranks: their tokens, the exchanges, and what an uneven load costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from advice_programs import spoke
from many_ranks import Rank

import kernelscope as ks
from events import Events
from kernelscope import analysis

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
# Tokens that each rank gets in each layer: of 32 from both ranks.
TOKENS = {(0, 0): 6, (1, 0): 58, (0, 1): 64, (1, 1): 0}


def recorded() -> list[ks.Trace]:
    return [ks.read(RECORDED / f"experts/grouped-rank{rank}.json.gz") for rank in range(2)]


def test_exchanges_of_torch() -> None:
    found = analysis.expert_exchanges(recorded())
    columns = ("rank", "phase", "layer", "direction", "tokens_sent", "tokens_received")
    expected = []
    for rank in range(2):
        for phase, layers in (("forward", (0, 1)), ("backward", (1, 0))):
            for layer in layers:
                tokens = TOKENS[rank, layer]
                expected.append((rank, phase, layer, "dispatch", 32, tokens))
                expected.append((rank, phase, layer, "combine", tokens, 32))
    assert found.select(columns).rows() == expected
    assert (found["exposed_wait_ns"] <= found["exposed_ns"]).all()
    assert (found["exposed_ns"] <= found["dur_ns"]).all()


def test_a_rank_alone_has_the_same_exchanges() -> None:
    columns = ("phase", "layer", "direction", "tokens_sent", "tokens_received")
    both = analysis.expert_exchanges(recorded()).filter(rank=0).select(columns)
    for kind in ("grouped", "loop"):
        trace = ks.read(RECORDED / f"experts/{kind}-rank0.json.gz")
        assert analysis.expert_exchanges(trace).select(columns).equals(both)


def test_layers_name_the_hot_rank() -> None:
    layers = analysis.expert_layers(recorded())
    columns = ("phase", "layer", "ranks", "routed_tokens", "tokens_max", "hot_rank", "imbalance")
    assert layers.select(columns).rows() == [
        (phase, layer, 2, 64, most, hot, pytest.approx(most / 32 - 1))
        for phase in ("backward", "forward")
        for layer, most, hot in ((0, 58, 1), (1, 64, 0))
    ]


def test_grouped_products_have_the_tokens_of_their_rank() -> None:
    found = analysis.expert_products(recorded())
    assert set(found["experts"]) == {2}
    forward = found.filter(phase="forward")
    # Two products in each layer. Offsets alone say what each expert gets.
    assert forward.select("rank", "tokens").rows() == [
        (rank, TOKENS[rank, layer]) for rank in range(2) for layer in range(2) for _ in range(2)
    ]
    assert found["tokens_by_expert"].null_count() == found.height


@pytest.mark.parametrize(
    ("name", "inputs", "values", "tokens"),
    [
        ("_GroupedLinear", [[12, 64], [], *[[32, 64]] * 3], ["", "[5, 0, 7]", "", "", ""], [5, 0, 7]),
        ("primus_turbo::grouped_gemm", [[[4, 64], [8, 64]], [[64, 32], [64, 32]]], ["", ""], [4, 8]),
    ],
)
def test_tokens_of_each_expert(
    name: str, inputs: list[Any], values: list[str], tokens: list[int], tmp_path: Path
) -> None:
    program = Events()
    types = ["TensorList" if inputs[0] and isinstance(inputs[0][0], list) else "float"] * len(inputs)
    types = ["ScalarList" if shape == [] else kind for shape, kind in zip(inputs, types, strict=True)]
    program.op(name, 10, 5, Input_Dims=inputs, Input_type=types, Concrete_Inputs=values)
    found = analysis.expert_products(program.read(tmp_path))
    assert found["tokens_by_expert"].to_list() == [tokens]
    assert found.select("experts", "tokens").row(0) == (len(tokens), 12)
    assert found["imbalance"].item() == pytest.approx(max(tokens) / (12 / len(tokens)) - 1)


def uneven(folder: Path, ends: tuple[float, float], splits: tuple[list[int], list[int]]) -> list[ks.Trace]:
    """Two ranks with GPUs, of which the first computes its experts until ``ends[0]``, the other until
    ``ends[1]``.
    """
    traces = []
    for rank in range(2):
        one = Rank(rank, 2)
        sent, received = splits[rank], [splits[other][rank] for other in range(2)]
        one.step(0, 0, 1000)
        for start, end, into, out, ts in (
            (100, 150, sent, received, 20),
            (ends[rank], max(ends) + 50, received, sent, 40),
        ):
            known = {"In_split_size": str(into), "Out_split_size": str(out)}
            elements = {"In_msg_nelems": 64 * sum(into), "Out_msg_nelems": 64 * sum(out)}
            one.collective(
                start, end - start, launched=ts, Collective_name="all_to_allv", **known, **elements
            )
        one.kernel(150, ends[rank] - 150, launched=30)
        one.kernel(max(ends) + 50, 1000 - max(ends) - 50, launched=50)
        traces.append(one.read(folder))
    return traces


def test_kernels_record_their_splits(tmp_path: Path) -> None:
    traces = uneven(tmp_path, (850, 250), ([20, 12], [30, 2]))
    found = analysis.expert_exchanges(traces)
    columns = ("rank", "direction", "tokens_sent", "tokens_received")
    assert found.select(columns).rows() == [
        (0, "dispatch", 32, 50),
        (0, "combine", 50, 32),
        (1, "dispatch", 32, 14),
        (1, "combine", 14, 32),
    ]
    layer = analysis.expert_layers(traces).row(0, named=True)
    assert (layer["hot_rank"], layer["imbalance"]) == (0, pytest.approx(50 / 32 - 1))
    # The second rank waits from 250 to 850 us.
    assert layer["combine_wait_ns"] == 600_000


def test_advice_about_experts(tmp_path: Path) -> None:
    table = analysis.recommendations(uneven(tmp_path / "uneven", (850, 250), ([20, 12], [30, 2])))
    row = spoke(table, "uneven_experts")
    assert row["rank"] == 0
    assert "rank 0 gets 56.2 % more tokens than the mean" in row["evidence"]
    assert row["saving_ns"] == 300_000
    even = uneven(tmp_path / "even", (850, 840), ([16, 16], [16, 16]))
    assert "uneven_experts" not in analysis.recommendations(even)["id"]


def test_a_lake_gives_the_same_as_its_traces(tmp_path: Path) -> None:
    traces = recorded()
    ks.batch.run([Path(trace.meta.path) for trace in traces], tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    for question in (analysis.expert_exchanges, analysis.expert_layers, analysis.expert_products):
        assert question(lake).equals(question(traces))


def test_other_jobs_have_no_experts() -> None:
    trace = ks.read(RECORDED / "gloo/fsdp-rank0.json.gz")
    assert analysis.expert_exchanges(trace).is_empty()
    assert analysis.expert_layers(trace).is_empty()
    assert analysis.expert_products(trace).is_empty()
