PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test soak format clean

demo: $(VENV)/installed
	$(BIN)/unperturbed demo

test: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest --numprocesses auto -m 'not slow'

# Kills at random moments, 100,000 hostile inputs and more, and the tests marked slow, in about half an hour.
soak: $(VENV)/installed
	$(BIN)/python tests/soak.py

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@
