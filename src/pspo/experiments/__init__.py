"""The paper's tables and figures as declarations, and the grids of runs behind them."""
