PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test results soak lowest format clean

demo: $(VENV)/installed
	$(BIN)/unperturbed demo

test: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest --numprocesses auto -m 'not slow'

# What is measured on digits, made again where recipes have changed, in about an hour on two cores with nothing beside.
results: $(VENV)/installed
	$(BIN)/python benchmarks/remake.py

# Kills at random moments, 100,000 hostile inputs and more, and the tests marked slow, in about half an hour.
soak: $(VENV)/installed
	$(BIN)/python tests/soak.py

# The tests with the least versions that are allowed; older ones of others' packages warn of themselves.
lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/pip install --quiet --constraint constraints-lowest.txt --editable '.[tensorboard]' \
		pytest pytest-xdist hypothesis packaging
	$(VENV)-lowest/bin/python -m pytest --numprocesses auto -m 'not slow' --override-ini filterwarnings=ignore \
		--deselect tests/test_dependencies.py

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(VENV)-lowest build dist .pytest_cache .ruff_cache

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@
