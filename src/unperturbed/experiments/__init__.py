"""One small file for each table or figure, and what plans the runs they need, makes them and tells of them."""
