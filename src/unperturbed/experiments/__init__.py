"""One small file for each table or figure: which recipes, which attacks, which columns."""
