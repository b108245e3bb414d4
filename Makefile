# make test: style, types and tests.  make check: the same without the long tests.
# make demo: a Transformer trained and scored on this machine.
# make docs: these pages and the API as a site, in build/site.
# make bench: the tables of docs/performance.md measured on this machine, which takes an hour and more.
# All make their virtual environment first, from any Python 3.10 to 3.13.

VENV ?= .venv
BIN := $(VENV)/bin

DEMO ?= demo
DEMO_HPARAMS ?= transformer_numbers
DEMO_STEPS ?= 1000
DEMO_EVAL_EVERY ?= 200
DEMO_AVERAGED ?= 3
DEMO_DECODE ?= beam_size=4,alpha=0.6

BENCH ?= bench
BENCH_PAGE ?= docs/performance.md
# The corpus, fetched into $(BENCH)/raw unless it is there, and its text.
BENCH_PROBLEM ?= translate_ende_multi30k
BENCH_TEXT ?= $(BENCH)/raw/train.en.gz $(BENCH)/raw/train.de.gz
# Such as --quick, --only=training_step,translation or --torch_python=DIR/bin/python.
BENCH_FLAGS ?=

# The first Python that TensorFlow supports and that can make a virtual environment. The system's comes
# first: it is compiled with all optimizations, and pyenv's is not unless it is told to.
PYTHON ?= $(shell for python in /usr/bin/python3 python3 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import ensurepip, sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' \
	2> /dev/null && echo $$python && break; done)

PYTORCH_CPU := https://download.pytorch.org/whl/cpu

.PHONY: test check checked demo docs bench

test: checked
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: checked
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long"

checked: $(VENV)/installed-dev
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	rm -rf build $(VENV)/package
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --target $(VENV)/package .
	cd $(VENV)/package && ../bin/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir=$(CURDIR)/.mypy_cache -p t2t_keras

demo: $(VENV)/installed
	$(BIN)/t2t-keras-datagen --problem=translate_ende_numbers --data_dir=$(DEMO)/data
	$(BIN)/python -c 'from t2t_keras.problems import numbers; \
		numbers.write("test", "$(DEMO)/test.en", "$(DEMO)/test.de")'
	$(BIN)/t2t-keras-train --problem=translate_ende_numbers --hparams=$(DEMO_HPARAMS) \
		--data_dir=$(DEMO)/data --output_dir=$(DEMO)/run \
		--train_steps=$(DEMO_STEPS) --local_eval_frequency=$(DEMO_EVAL_EVERY)
	$(BIN)/t2t-keras-avg --prefix=$(DEMO)/run --num_last_checkpoints=$(DEMO_AVERAGED) \
		--output_path=$(DEMO)/averaged/model.ckpt
	$(BIN)/t2t-keras-decode --data_dir=$(DEMO)/data --checkpoint_path=$(DEMO)/averaged/model.ckpt \
		--decode_hparams=$(DEMO_DECODE) \
		--decode_from_file=$(DEMO)/test.en --decode_to_file=$(DEMO)/test.translated.de
	$(BIN)/t2t-keras-bleu --translation=$(DEMO)/test.translated.de --reference=$(DEMO)/test.de

docs: $(VENV)/installed-docs
	rm -rf build/pages && mkdir -p build/pages
	cp -r README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs build/pages
	$(BIN)/zensical build --clean --strict

bench: $(VENV)/installed-bench
	$(BIN)/t2t-keras-datagen --problem=$(BENCH_PROBLEM) --data_dir=$(BENCH)/data --tmp_dir=$(BENCH)/raw
	$(BIN)/python benchmarks/report.py $(BENCH_PAGE) --text $(BENCH_TEXT) $(BENCH_FLAGS)

$(VENV)/installed: setup.cfg pyproject.toml | $(BIN)/python
	@echo "Installing TensorFlow and what else is needed into $(VENV): 2.6 GB on disk."
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/installed-dev: setup.cfg pyproject.toml | $(BIN)/python
	@echo "Installing TensorFlow and what else is needed into $(VENV): 4.8 GB on disk."
	@# PyTorch's build for CPUs, if its index answers at once; PyPI's brings 3 GB of CUDA.
	$(BIN)/pip install --quiet --retries 0 --extra-index-url $(PYTORCH_CPU) 'torch<2.14'
	$(BIN)/pip install --quiet --editable .[dev]
	touch $(VENV)/installed $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/pip install --quiet --editable .[docs]
	touch $@

$(VENV)/installed-bench: $(VENV)/installed
	$(BIN)/pip install --quiet --editable .[bench,ctranslate2,plot]
	touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.10 to 3.13 found: make PYTHON=... names one." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
