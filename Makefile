# SPDX-License-Identifier: GPL-2.0
# Short goals; guest/, tests/ and bench/ do the work.
PYTHON := build/venv/bin/python
VARIANT ?= quire
FLAVOUR ?= amd64
MINUTES ?= 60
HOURS ?= 1
JOBS ?= 2
# Guests of suites and models at a time. With more CPUs in all than the host's, emulated ones slow each other.
GUESTS ?= 1
# Parts without a suite are those of ltp.
SUITE ?= $(if $(PARTS),ltp,ltp kselftest stress-ng $(if $(CRIU),zdtm) $(if $(XFSTESTS),xfstests))
BEGUN := $(shell date +%s)
WORKERS = -n $(JOBS) --dist worksteal --durations 10
TESTS = $(PYTHON) tests/run.py --since $(BEGUN) $(WORKERS)
BUILD = python3 -m guest.build

.PHONY: help packages kernel demo deb deb-tools apt-repo check quick lint check-debug check-races check-package soak \
	suites coverage fuzz models matrix bench results clean distclean

help:
	@echo 'make demo         build all, then the benchmarks with the features off and on, side by side'
	@echo 'make check        build what the tests need and run all tests'
	@echo 'make quick        only the tests that your changes affect, on one kernel (SINCE=COMMIT)'
	@echo 'make lint         style and static checks alone, no guest'
	@echo 'make check-debug  the guest tests on a kernel with KASAN, lockdep and the other checkers'
	@echo 'make check-races  the models of the features on a kernel with KCSAN, which finds data races (MINUTES=60 each)'
	@echo 'make soak         the long runs, on the plain kernel, the debug kernel and the one with KCSAN (MINUTES=60 LTP=PATH)'
	@echo 'make suites       other projects'"'"' tests on vanilla and quire, compared, for docs/trust.md (LTP=PATH CRIU=PATH XFSTESTS=PATH WILL_IT_SCALE=PATH)'
	@echo 'make coverage     which lines of mm/quire the guest tests reach, for docs/coverage.md'
	@echo 'make models       the steps of our models of the features, under pressure, for docs/trust.md (MINUTES=60 GUESTS=1)'
	@echo 'make fuzz         random system calls of syzkaller on all features, for docs/trust.md (HOURS=1 SYZKALLER=PATH)'
	@echo 'make matrix       the hooks on each 6.12.y that apt offers, for docs/trust.md (CHECKS="check check-debug")'
	@echo 'make bench        three columns: vanilla, quire off, quire on'
	@echo 'make results      measure all benchmarks again and write bench/results and docs/results.md'
	@echo 'make kernel       build one kernel (VARIANT=quire|vanilla|debug|kcsan|off|gcov|fuzz|quire-jump|vanilla-jump)'
	@echo 'make deb          all Debian packages, to install: kernel and tools (FLAVOUR=amd64|cloud-amd64, or CONFIG=file)'
	@echo 'make check-package  install, boot, use, upgrade and purge the packages of build/deb on a Debian machine'
	@echo 'make deb-tools    the package of quirectl and what belongs to it alone; builds no kernel'
	@echo 'make apt-repo     an apt repository in build/apt of the packages that were made (KEY=key of gpg, to sign it)'
	@echo 'make packages     install what is missing (apt, and a Python venv in build/venv)'
	@echo 'LINUX=PATH        with any of these: a tree or tarball of Linux 6.12.y in place of the one that apt has'
	@echo 'make clean        remove build/, except the Python venv (make distclean: all of it)'

packages:
	@python3 -m guest.packages

kernel:
	@$(BUILD) $(VARIANT)

deb:
	@python3 -m guest.packages --for deb
	@python3 -m guest.deb $(if $(CONFIG),--config $(CONFIG),--flavour $(FLAVOUR))

check-package: packages
	@ls build/deb/quire_*.deb >/dev/null 2>&1 || python3 -m guest.deb --flavour cloud-amd64
	@$(TESTS) --name check-package -m soak --timeout 0 tests/test_installation.py

deb-tools:
	@python3 -m guest.deb_tools

apt-repo:
	@python3 -m guest.apt_repo $(if $(KEY),--key '$(KEY)')

demo:
	@python3 -m guest.packages --for demo
	@$(BUILD) quire
	@bench/demo

check: packages
	@$(BUILD) quire --objects off --configure vanilla
	@needed=$$($(PYTHON) tests/record.py --needed) && if [ "$$needed" ]; then $(BUILD) $$needed; fi
	@$(TESTS) --name check -m 'not soak and not debug_only'

quick: packages
	@$(PYTHON) tests/quick.py $(if $(SINCE),--since $(SINCE)) $(WORKERS)

lint: packages
	@$(BUILD) --configure quire
	@$(TESTS) --name lint tests/test_lint.py

check-debug: packages
	@$(BUILD) debug
	@$(TESTS) --name check-debug -m 'debug and not soak' --kernel debug

check-races: packages
	@$(BUILD) kcsan
	@MINUTES=$(MINUTES) $(TESTS) --name check-races -m kcsan --timeout 0

soak: packages
	@$(BUILD) vanilla quire debug kcsan off
	@MINUTES=$(MINUTES) $(TESTS) --name soak -m soak --timeout 0
	@MINUTES=$(MINUTES) LEAKS=1 $(TESTS) --name soak-debug -m debug --timeout 0 --kernel debug
	@$(if $(LTP),,echo "note: LTP=PATH would also run the Linux Test Project")
	@$(MAKE) suites $(if $(LTP),,SUITE='kselftest stress-ng $(if $(CRIU),zdtm) $(if $(XFSTESTS),xfstests)')

suites: packages
	@$(BUILD) vanilla quire
	@status=0; for suite in $(SUITE); do \
		suites/run $$suite --jobs $(GUESTS) $(if $(LTP),--source 'ltp=$(LTP)') \
			$(if $(CRIU),--source 'zdtm=$(CRIU)') $(if $(XFSTESTS),--source 'xfstests=$(XFSTESTS)') \
			$(foreach part,$(PARTS),--part '$(part)') \
			|| status=1; done; \
		$(if $(WILL_IT_SCALE),suites/scale --source '$(WILL_IT_SCALE)' || status=1;) suites/publish && exit $$status

coverage: packages
	@$(BUILD) gcov
	@suites/coverage && suites/publish

fuzz: packages
	@$(BUILD) fuzz
	@suites/fuzz --hours $(HOURS) $(if $(SYZKALLER),--source '$(SYZKALLER)'); status=$$?; suites/publish && exit $$status

models: packages
	@$(BUILD) quire
	@suites/models --minutes $(MINUTES) --jobs $(GUESTS); status=$$?; suites/publish && exit $$status

matrix: packages
	@suites/matrix $(foreach goal,$(CHECKS),--check '$(goal)'); status=$$?; suites/publish && exit $$status

bench: packages
	@$(BUILD) vanilla quire vanilla-jump quire-jump
	@bench/run --icount --jump && bench/run --clock

results: packages
	@$(BUILD) vanilla quire vanilla-jump quire-jump
	@bench/publish --run

clean:
	rm -rf $(filter-out build/venv,$(wildcard build/* build/.selftests.lock))

distclean:
	rm -rf build
