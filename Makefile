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
	$(BIN)/python -m pytest --numprocesses auto

# The properties of tests/test_fuzz.py on 100,000 inputs and more, in about a quarter of an hour.
soak: $(VENV)/installed
	UNPERTURBED_FUZZ=$(or $(UNPERTURBED_FUZZ),50) $(BIN)/python -m pytest --capture no tests/test_fuzz.py

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@
