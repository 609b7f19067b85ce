"""Write docs/onnx-support.md: what comes of the ONNX standard's node tests and of our small cases.

    python benchmarks/onnx_support.py [--results FILE] [--as-it-stands]

Verdicts are kept in FILE (JSON lines) as they are found, so that an interrupted run goes on where
it stopped; remove the file to judge everything anew. tests/node_tests_passing.txt is written too:
the tests hold every name in it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.onnx_cases import small_cases  # noqa: E402
from tests.onnx_judge import FAULT, GROUP, REFUSED, RIGHT, WRONG, Verdict, judge_group  # noqa: E402
from tests.standard_node_tests import node_tests  # noqa: E402

PAGE = ROOT / "docs" / "onnx-support.md"
PASSING = ROOT / "tests" / "node_tests_passing.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "onnx-support.jsonl")
    parser.add_argument(
        "--as-it-stands", action="store_true", help="judge nothing more; write what FILE has"
    )
    options = parser.parse_args()
    tests = {name: test for name, test in node_tests().items() if not test.is_outside}
    cases = {f"case {case.name}": case for case in small_cases()}
    found = _judged(cases, {} if options.as_it_stands else tests, options.results)
    nodes = {name: found[name] for name in tests if name in found}
    small = {name: found[name] for name in cases}
    left_out = len(node_tests()) - len(tests)
    PASSING.write_text("".join(f"{name}\n" for name in nodes if nodes[name].kind == RIGHT))
    PAGE.write_text(_page(nodes, small, left_out, len(tests) - len(nodes)))


def _judged(cases: Mapping, tests: Mapping, results: Path) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    if results.exists():
        for line in results.read_text().splitlines():
            one = json.loads(line)
            found[one["name"]] = Verdict(one["kind"], one["reason"])
    todo = [name for name in [*cases, *tests] if name not in found]
    results.parent.mkdir(exist_ok=True)
    with results.open("a") as kept, tqdm(total=len(todo), disable=None) as bar:
        for start in range(0, len(todo), GROUP):
            names = todo[start : start + GROUP]
            group = {name: cases[name] if name in cases else tests[name].case() for name in names}
            verdicts = judge_group(list(group.values()))
            for name, case in group.items():
                found[name] = verdict = verdicts[case.name]
                line = {"name": name, "kind": verdict.kind, "reason": verdict.reason}
                kept.write(json.dumps(line) + "\n")
            kept.flush()
            bar.update(len(names))
    return found


def _page(
    nodes: Mapping[str, Verdict], small: Mapping[str, Verdict], outside: int, not_run: int
) -> str:
    return f"""# What of ONNX is supported

This page is written by `benchmarks/onnx_support.py`. Everything is compiled for the host's CPU and
run, and the outputs are compared with the known ones: *right* is the same shape, type and value;
*refused* is an error that names the node and the reason; *wrong* is another value; *fault* is an
error that is ours. A model that is refused can be cut before the node that is named.

| | right | refused | wrong | fault | all |
|---|---:|---:|---:|---:|---:|
{_row("node tests of the ONNX standard", nodes)}
{_row("small models of `tests/cases`", small)}

Of the standard's tests {outside} are left out: training, strings and classic machine learning.
{not_run} of the others were not run for this page.
Where a test feeds a shape, an axis, a count, a quantisation parameter or the weights of a recurrent
layer as an input, that input is fixed to the test's value, as it must be known when compiling.
float16 results may differ by 2e-3 of their value, others by the standard's own tolerance.

## Known limits

- Results whose shape depends on data (NonZero, Compress, Unique, NonMaxSuppression) are refused,
  and so are a TopK, Pad, Reshape or Tile whose count or shape is computed at run time.
- There is no arithmetic of bfloat16, float8 and float4 and no tensor of 2 or 4 bits at an input or
  output.
- Control flow needs a known number of iterations and branches of equal shapes.
- Not a number stays so through Relu, Clip, Sign, Min, Max, ReduceMin and ReduceMax. (onnxruntime
  loses it in its reductions.)
- Sigmoid of float32 is within 3 units in the last place, also far below zero, where onnxruntime's
  errs by up to 1.2e-7, about 1 % of 1e-5. A network whose outputs are all that small, as a text
  detector on noise, differs from onnxruntime by as much.

## Node tests that do not pass

{_table(nodes)}
## Small models that do not pass

{_table(small)}"""


def _row(what: str, verdicts: Mapping[str, Verdict]) -> str:
    counts = Counter(verdict.kind for verdict in verdicts.values())
    cells = [counts[kind] for kind in (RIGHT, REFUSED, WRONG, FAULT)]
    return f"| {what} | {' | '.join(map(str, cells))} | {len(verdicts)} |"


def _table(verdicts: Mapping[str, Verdict]) -> str:
    """A row a reason, with the tests it stops."""
    stopped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, verdict in verdicts.items():
        if verdict.kind != RIGHT:
            reason = verdict.reason.split(": ", 1)[-1].replace("|", "/")[:200]
            stopped[verdict.kind, reason].append(name.removeprefix("test_").removeprefix("case "))
    rows = [
        f"| {kind} | {reason} | {len(names)}: {', '.join(names[:6])}{' ...' * (len(names) > 6)} |"
        for (kind, reason), names in sorted(stopped.items(), key=lambda one: -len(one[1]))
    ]
    return "\n".join(["| verdict | reason | tests |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    main()
