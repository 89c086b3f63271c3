"""The measurements as tables for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def show(results: dict[str, Any], console: Console) -> None:
    console.print(_overview(results))
    for name, case in results["cases"].items():
        console.print(_parts(name, case["pspo_step"]))
        console.print(_check(case["pspo_step"]), style="dim")
    console.print(_overhead(results["overhead"]))
    console.print("Operations are counted by formula:", style="dim")
    for name, formula in results["formulas"].items():
        console.print(f"  {name}: {formula}", style="dim", highlight=False, markup=False)


def _overview(results: dict[str, Any]) -> Table:
    product, action, play = results["matrix_product"], results["action"], results["simulator"]
    grid = Table(title=f"Speed (XLA threads: {product['threads']})", caption="median (quartiles)")
    grid.add_column("what")
    for heading in ("per unit", "GFLOP/s", "of the matrix product"):
        grid.add_column(heading, justify="right")
    grid.add_row(f"matrix product {product['size']}², best", "", f"{product['gflops']:.0f}", "1")
    for name, case in results["cases"].items():
        for what, result in (("pool fit step", case["pool_fit_step"]), ("PSPO step", case["pspo_step"])):
            cost = f"{with_quartiles(result['milliseconds'], '.2f')} ms"
            speed, share = with_quartiles(result["gflops"], ".1f"), with_quartiles(result["fraction_of_machine"], ".0%")
            grid.add_row(f"{what}, {name}", cost, speed, share)
    grid.add_row(
        "action for one state (NumPy)", f"{with_quartiles(action['microseconds_per_state'], '.1f')} µs", "", ""
    )
    cost = f"{with_quartiles(action['microseconds_per_state_in_batch'], '.2f')} µs"
    grid.add_row(f"action for one state of {action['batch']:,}", cost, "", "")
    rate = play["transitions_per_second"]
    grid.add_row("liquidation simulator", f"{with_quartiles(rate, '.1f', 1e-6)} M transitions/s", "", "")
    return grid


def _parts(name: str, step: dict[str, Any]) -> Table:
    grid = Table(title=f"Parts of a PSPO step, {name}", caption="each compiled alone")
    grid.add_column("part")
    for heading in ("ms", "share of the step", "MFLOP", "of the matrix product"):
        grid.add_column(heading, justify="right")
    parts = sorted(step["parts"].items(), key=lambda item: -item[1]["milliseconds"]["median"])
    for part, result in parts:
        share = result.get("fraction_of_machine")
        grid.add_row(
            part,
            with_quartiles(result["milliseconds"], ".2f"),
            with_quartiles(result["share_of_step"], ".0%"),
            f"{result['flops'] / 1e6:,.1f}" if result["flops"] else "",
            with_quartiles(share, ".0%") if share else "",
        )
    total = {key: sum(result[key]["median"] for _, result in parts) for key in ("milliseconds", "share_of_step")}
    grid.add_section()
    grid.add_row("sum of the parts", f"{total['milliseconds']:.2f}", f"{total['share_of_step']:.0%}", "", "")
    whole = step["milliseconds"]["median"]
    grid.add_row("the step as it is", f"{whole:.2f}", "100%", f"{step['flops'] / 1e6:,.1f}", "")
    return grid


def _overhead(costs: dict[str, Any]) -> Table:
    grid = Table(title="Overhead, Hopper size", caption="authors' networks and batches; actions in NumPy")
    grid.add_column("algorithm")
    for heading in ("ms per iteration", "ms per action"):
        grid.add_column(heading, justify="right")
    for algo, cost in costs.items():
        iteration, action = cost["iteration_milliseconds"], cost["inference_milliseconds"]
        grid.add_row(algo, with_quartiles(iteration, ".2f"), with_quartiles(action, ".3f"))
    return grid


def _check(step: dict[str, Any]) -> str:
    return (
        f"MFLOP per step: {step['flops'] / 1e6:,.1f} by formula, {step['flops_by_xla'] / 1e6:,.1f} by XLA "
        f"(x {step['flops_by_xla_over_formula']:.2f}: XLA also counts elementwise operations)"
    )


def with_quartiles(values: dict[str, float], form: str, scale: float = 1.0) -> str:
    """Median and quartiles, such as `10.2 (9.8-11)`."""
    median, low, high = (format(values[name] * scale, form) for name in ("median", "low", "high"))
    return f"{median} ({low}-{high})"
