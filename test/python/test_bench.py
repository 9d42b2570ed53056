"""bench/gpu.py: rows can be chosen, and a limit of time names what it leaves
out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from on_card import settings

BENCH = Path(__file__).resolve().parents[2] / "bench" / "gpu.py"


def said(*arguments: str, **environment: str) -> str:
    made = subprocess.run(
        [sys.executable, BENCH, *arguments],
        env=os.environ | {"NABLA_BENCH_SMALL": "1"} | environment,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


@pytest.fixture
def card() -> dict[str, str]:
    found = settings()
    if found is None:
        pytest.skip("no card, and no simulated one")
    return found


def test_rows_come_in_the_order_of_their_worth() -> None:
    names = said("--list").splitlines()
    first = "MLP", "one small op", "scan of 100000", "GPT-2"
    assert [n.startswith(w) for n, w in zip(names, first, strict=False)] == [
        True
    ] * 4
    for word in ("conv 64x56x56x64 f16 and back", "eigh", "512x512"):
        assert any(word in n for n in names)
    assert len(set(names)) == len(names)


def test_words_choose_rows() -> None:
    names = said("--list", "softmax", "64M").splitlines()
    assert names == [
        "chain 64M f32",
        "sum 64M f32",
        "softmax 8192x8192 f32",
    ]


def test_a_row_runs_without_other_libraries(card: dict[str, str]) -> None:
    told = said("--beside", "none", "one small op", "cholesky 1024", **card)
    rows = told.splitlines()[1:]
    assert [r[:12] for r in rows] == ["one small op", "cholesky 102"]
    assert all(" us " in r and "cold" in r for r in rows)
    assert "torch" not in told and "JAX" not in told


def test_after_the_limit_rows_are_named(card: dict[str, str]) -> None:
    told = said("--limit", "0", "MLP", "GPT-2", "svd", **card).splitlines()
    assert told[1:] == [
        "skipped, after 0 s: MLP 64x784x256x10 SGD step",
        "skipped, after 0 s: GPT-2 124M step",
        "skipped, after 0 s: svd 1024 f32",
    ]


def test_without_a_card_nothing_is_measured() -> None:
    told = said(NABLA_CUDA_DRIVER="/nowhere/libcuda.so")
    assert told == "no card here: nothing is measured\n"
