# Even Keel's commands. GNU make 4.3, a POSIX shell and Go are all they need: every other tool is built from dev/tools/go.mod
# into .bin/, never taken from PATH. .ci/run calls `make test`, `make test-race`, `make demo ONCE=1` and `make lint`.
#
# Modules: the root is the library; examples/ uses it through a replace; examples/webapp/ is one to copy; localcluster/server/
# is a Kubernetes control plane in one binary; dev/ has what contributors need; dev/tools/ holds the tools' versions. There is
# no go.work on purpose: a workspace selects one version of each dependency for all its modules, and localcluster is on
# Kubernetes 1.36 (k8s.io/* v0.36) while the library is on v0.37.

SHELL := /bin/sh
.DEFAULT_GOAL := help
# One target at a time, but for make test, which runs its two parts at once.
ifndef PARALLEL
.NOTPARALLEL:
endif
.SUFFIXES:

BIN := .bin
# The modules that make lint checks: the library, and what its users and its tests use.
LINTED := . simulation examples examples/webapp dev/integration tracing/otel compat/kooper compat/controllerruntime
# make lint-all checks the other modules too, but for programs on other libraries, which would have those libraries
# linted with them. Their dependencies (Kubernetes, Prometheus) take minutes.
MODULES := $(LINTED) localcluster/server $(addprefix dev/,bench bench/compat bench/shared bench/evenkeel monitoring tools) simulation/controllerruntime

FUZZTIME ?= 10s
COUNT ?= 6
BENCH ?= .
COVERED := internal/wire internal/store informer internal/workqueue controller

# A go.work further up the tree would join modules that must stay apart.
export GOWORK := off
# A checkout that belongs to another user (usual in CI) makes Go's version stamp fail; nothing here reads that stamp.
export GOFLAGS += -buildvcs=false
# Nothing that make starts may act on the cluster that the caller's shell happens to point at. `make demo KUBECONFIG=...`
# hands the path on as a flag.
ifneq ($(filter 1 t T true True TRUE,$(EVENKEEL_USE_EXISTING_CLUSTER)),)
# The tests were asked to use the cluster of the default rules. Name it before its variable goes.
export EVENKEEL_USE_EXISTING_CLUSTER := $(or $(KUBECONFIG),$(error set EVENKEEL_USE_EXISTING_CLUSTER to the path of a kubeconfig: make does not guess which cluster the tests may change))
endif
unexport KUBECONFIG

# The race detector needs cgo, hence a C compiler. Without one the tests still run, and say so.
RACE = $(shell test "$$(go env CGO_ENABLED)" = 1 && command -v "$$(go env CC | cut -d' ' -f1)" >/dev/null && echo -race)
define race_note
@test -n "$(RACE)" || echo "note: the race detector is off, because no C compiler was found (CGO_ENABLED=$$(go env CGO_ENABLED), CC=$$(go env CC))"
endef

# Without this the race detector waits for a second at the end of each package, so that goroutines which still run can
# finish their reports. No goroutine runs then: goleak checks it.
export GORACE ?= atexit_sleep_ms=0

# Every test is executed, in random order; dev/run-test measures and repeats it. -vet=off: make lint has the same checks.
# GOGC=400 lets the compiler and the linker collect garbage less often: linking takes a quarter less CPU time. dev/run-test
# unsets it for the tests. $(1) is the folder of the module.
gotest = GOGC=400 go test -C $(1) -vet=off -shuffle=on -count=1 -timeout $(if $(EVENKEEL_REPEAT),0,10m) -exec '$(CURDIR)/dev/run-test'

.PHONY: help
help: ## Show this list, and whether the present tree has passed .ci/run
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@checked="$${XDG_CACHE_HOME:-$$HOME/.cache}/evenkeel/checked"; \
	if test -n "$$(git status --porcelain 2>/dev/null)"; then echo "The checkout has changes that .ci/run has not checked."; \
	elif grep -qsx "$$(git rev-parse 'HEAD^{tree}' 2>/dev/null)" "$$checked"; then echo "This tree has passed .ci/run."; \
	else echo "This tree has not passed .ci/run on this machine."; fi

.PHONY: demo
demo: ## Run the main demo; ONCE=1 ends by itself, KUBECONFIG=path uses that cluster instead of a local one
	@set --; \
	if test -n "$(ONCE)"; then set -- "$$@" --once; fi; \
	path='$(if $(filter command%,$(origin KUBECONFIG)),$(KUBECONFIG))'; \
	if test -n "$$path"; then \
		case $$path in \
		/*) ;; \
		"~/"*) path=$$HOME/$${path#??} ;; \
		*) path=$$PWD/$$path ;; \
		esac; \
		set -- "$$@" --kubeconfig "$$path"; \
	fi; \
	mkdir -p $(BIN); \
	echo "building the demo (a minute or two the first time)"; \
	go build -C examples -o ../$(BIN)/demo ./demo && exec $(BIN)/demo "$$@"

.PHONY: test
test: ## Run every unit test, and for each feature that only a real kube-apiserver has, the test that shows it
	@$(MAKE) --no-print-directory -j2 PARALLEL=1 test-memory test-processes

# The tests themselves decide which of them need a real API server. A package whose TestMain calls clustertest.Main needs it
# for all tests: make test runs those named TestSmoke. The other packages of dev/integration have models of Kubernetes'
# controllers. Of those, make test runs the tests that anyCluster.Test gives virtual time: with -short the others are
# skipped. All other packages run in memory, and skip the tests that call testlength.OnlyLong (exampletest and localcluster
# have helpers that do). make test-all runs all tests, on a real server.
memory = $(or $(shell cd $(1) && for d in $$(go list -f '{{.Dir}}' ./...); do \
	grep -qs 'clustertest\.Main' $$d/*_test.go || echo $$d; done),$(error go list -C $(1) finds no packages: its message is above))
# The packages of a module with a test that matches $(2).
having = $(or $(shell cd $(1) && grep -rlE --include='*_test.go' '$(2)' . | xargs -n 1 dirname | sort -u),\
	$(error no test of $(1) has $(2)))

# After a failure the tests of the other modules run nevertheless.
.PHONY: test-memory
test-memory:
	status=0; \
	$(call gotest,.) ./... || status=1; \
	$(call gotest,simulation) $(call memory,simulation) || status=1; \
	$(call gotest,tracing/otel) ./... || status=1; \
	$(call gotest,compat/kooper) ./... || status=1; \
	$(call gotest,compat/controllerruntime) ./... || status=1; \
	$(call gotest,examples) ./... || status=1; \
	$(call gotest,examples/webapp) ./... || status=1; \
	$(call gotest,dev/integration) -short $(call having,dev/integration,anyCluster\.Test) || status=1; \
	exit $$status

# What the local cluster is built with (goFlags in localcluster/build.go): otherwise all of Kubernetes would be compiled a
# second time.
of_localcluster = CGO_ENABLED=0 GOFLAGS='$(GOFLAGS) -gcflags=all=-dwarf=false'

.PHONY: test-processes
test-processes: localcluster-binary
	status=0; \
	$(call gotest,dev/integration) -run '^TestSmoke' $(call having,dev/integration,^func TestSmoke) || status=1; \
	$(call gotest,simulation) -run '^TestSmoke' $(call having,simulation,^func TestSmoke) || status=1; \
	$(of_localcluster) $(call gotest,localcluster/server) ./... || status=1; \
	exit $$status

# What runs in a controller: these packages, and all that they depend on and that import sync. The package of the root
# runs them together.
ENGINE := ./controller/... ./leader ./manager ./source/...
locking = $(shell go list -deps -f '{{with .Module}}{{if .Main}}{{$$.ImportPath}} {{join $$.Imports " "}}{{end}}{{end}}' $(ENGINE) | \
	sed -nE 's/^([^ ]+).* sync(\/atomic)?( .*)?$$/\1/p')

.PHONY: test-race
test-race: ## Run the tests of the engine with the race detector
	$(race_note)
	$(call gotest,.) $(RACE) . $(ENGINE) $(or $(locking),$(error go list finds no package that imports sync: its message is above))

.PHONY: test-all
test-all: localcluster-binary ## Run all that make test shortens or leaves out; dev/test-all.txt has the last result
	dev/test-all

# The oldest and the newest version of localcluster/kubernetes.go.
VERSIONS ?= 1.36 1.37

.PHONY: test-upgrade
test-upgrade: $(BIN)/apidiff ## Compare with an earlier version, FROM=COMMIT: the public API, and operators on each other's objects
	dev/test-upgrade $(FROM)

.PHONY: test-versions
test-versions: ## Run the tests that need a real API server on the oldest and the newest supported Kubernetes: VERSIONS='1.36 1.37'
	dev/test-versions $(VERSIONS)

.PHONY: test-repeat
test-repeat: | $(BIN) ## Repeat make test COUNT=n times on a busy machine (n/5 with processes); goes on where it stopped
	COUNT='$(COUNT)' dev/test-repeat

# The first build takes minutes. Doing it here shows its progress; go test would hide it and count it against -timeout.
.PHONY: localcluster-binary
localcluster-binary:
	@echo "building the local cluster (minutes the first time, then nothing)"
	go run ./localcluster/cmd/localcluster version

.PHONY: cover
cover: | $(BIN) ## Show the coverage of controller, workqueue and informer by all unit tests
	@list=$$(for p in $(COVERED); do test ! -d $$p || printf '%s' ",./$$p/..."; done); \
	go test -coverpkg="$${list#,}" -coverprofile=$(BIN)/cover.out -timeout 5m ./... >$(BIN)/cover.log || { cat $(BIN)/cover.log; exit 1; }
	@for p in $(COVERED); do \
		{ echo "mode: set"; grep "/evenkeel/$$p/" $(BIN)/cover.out; } >$(BIN)/cover-$$p.out || continue; \
		printf '%-12s ' $$p; go tool cover -func=$(BIN)/cover-$$p.out | awk 'END { print $$NF }'; \
	done
	@echo "line by line: go tool cover -html=$(BIN)/cover.out"

# The commit after which make lint checks the lengths of subjects.
SUBJECTS_SINCE := cfc6233

# golangci-lint runs every analyzer of go vet (govet with enable-all), so go vet is not run beside it.
.PHONY: lint
lint: $(BIN)/golangci-lint ## Check formatting, linters, go.mod files and commit subjects of the library, its examples and its tests
	@status=0; \
	if git cat-file -e $(SUBJECTS_SINCE) 2>/dev/null; then \
		git log --format='%h %s' $(SUBJECTS_SINCE)..HEAD | awk '{ subject = substr($$0, index($$0, " ") + 1) } \
			length(subject) > 72 { print "lint: the subject of this commit has more than 72 characters: " $$0; long = 1 } \
			END { exit long }' || status=1; \
	else \
		echo "lint: the lengths of commit subjects are not checked: commit $(SUBJECTS_SINCE) is missing (in a shallow clone)"; \
	fi; \
	for m in $(LINTED); do \
		echo "lint: golangci-lint in $$m"; \
		(cd $$m && if test $$m = localcluster/server; then export $(of_localcluster); fi && \
			"$(CURDIR)/$(BIN)/golangci-lint" run --allow-parallel-runners --config "$(CURDIR)/.golangci.yml" ./...) || status=1; \
		go mod tidy -C $$m -diff || status=1; \
	done; \
	test $$status = 0 || { echo "lint: failed, see above; make fmt repairs formatting, go mod tidy repairs go.mod"; exit 1; }; \
	echo "lint: passed in: $(LINTED)"

# The platforms for which make lint-all builds the library and the test kit.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: lint-all
lint-all: ## make lint in all modules and with other Kubernetes versions' go.mod files, and build for other platforms
	@$(MAKE) --no-print-directory lint LINTED='$(MODULES)'
	@status=0; \
	for file in $(wildcard localcluster/server/versions/*.mod); do \
		go mod tidy -C localcluster/server -modfile=versions/$${file##*/} -diff || status=1; \
	done; \
	for platform in $(PLATFORMS); do \
		echo "lint: go build for $$platform"; \
		for m in . simulation; do \
			GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0 go build -C $$m ./... || status=1; \
		done; \
	done; \
	exit $$status

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format all Go files (gofumpt, import groups)
	@for m in $(MODULES); do \
		(cd $$m && "$(CURDIR)/$(BIN)/golangci-lint" fmt --config "$(CURDIR)/.golangci.yml" ./...) || exit 1; \
	done

.PHONY: bench
bench: $(BIN)/benchstat ## Run BENCH=regexp COUNT=6 times into .bin/bench.txt; OLD=file compares with an earlier one
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 60m ./... | tee $(BIN)/bench.txt
	@! grep '^FAIL' $(BIN)/bench.txt
	$(BIN)/benchstat $(OLD) $(BIN)/bench.txt

# Without N it is the full run, forty minutes on two cores that nothing else uses, which writes docs/reference/benchmarks.md.
.PHONY: bench-compare
bench-compare: ## Compare with controller-runtime and Kooper; N=20000 ROUNDS=3 is a short run without the document
	go run -C dev/bench . $(if $(N),-n $(N),-docs ../../docs/reference) $(if $(ROUNDS),-rounds $(ROUNDS))

# The document again, from the results of the latest full run: after a change of its texts.
.PHONY: bench-docs
bench-docs:
	go run -C dev/bench . -from results.json -docs ../../docs/reference

# Without N it measures 1,000 and 5,000 WebApps, about half an hour on two cores that nothing else uses, and writes its
# section of docs/reference/benchmarks.md. The binary of the local cluster is built first: its first build takes minutes.
.PHONY: bench-operator
bench-operator: localcluster-binary ## Compare one operator on Even Keel and on controller-runtime; N=200 ROUNDS=3 is a short run
	go run -C dev/bench ./operator $(if $(N),-n $(N),-docs ../../docs/reference/benchmarks.md -out operator/results.json) $(if $(ROUNDS),-rounds $(ROUNDS))

# Without ROUNDS it is the full run, minutes on two cores that nothing else uses, which writes its section.
.PHONY: bench-webhooks
bench-webhooks: ## Compare webhook servers with those of controller-runtime; ROUNDS=1 is a short run without the document
	go run -C dev/bench/webhooks . $(if $(ROUNDS),-rounds $(ROUNDS),-docs ../../../docs/reference/benchmarks.md -out results.json)

# SUITES selects some: memory, memory/client, compat/cache, engine/jobset. make test-all runs those in memory, which take minutes.
.PHONY: peers
peers: localcluster-binary ## Run the tests of controller-runtime and of operators in memory, on local clusters, and on the cache and the engine of compat/controllerruntime
	EVENKEEL_LONG=1 go test -C simulation/controllerruntime -vet=off -count=1 -timeout 120m -v -run '^Test(Upstream|Operators)$$/$(SUITES)' .

# Not in CI: about an hour on two cores that nothing else uses. The folders are patterns; a package that moves is named
# here at its new place.
MUTATED := ./internal/store,./informer,./controller/...,./internal/workqueue,./client,./owned,./status,./finalizer,./leader

# Tests with a cluster that run on mutants which all other tests let pass. The packages left out have tests of minutes.
CLUSTERED := ./client=./dev/integration/client,./client=./dev/integration/apply,./owned=./dev/integration/owned,./owned=./dev/integration/toolkit,./status=./dev/integration/status,./finalizer=./dev/integration/finalizer

# A run of all packages writes the document; a run of some (PACKAGES=./status N=25) only prints its survivors.
.PHONY: mutants
mutants: localcluster-binary | $(BIN) ## Change code and look for tests that fail; PACKAGES=./status N=25 SEED=2 RUN=id RETRY=1, or HELP=1
	@go build -C dev/tools/mutants -o "$(CURDIR)/$(BIN)/mutants" . && exec $(BIN)/mutants \
		$(if $(HELP),-help) -package '$(or $(PACKAGES),$(MUTATED))' -last '$(CLUSTERED)' -verdicts dev/tools/mutants/verdicts.txt \
		$(if $(PACKAGES)$(RUN),-state $(BIN)/mutants-some.json,-state $(BIN)/mutants.json -out dev/tools/mutants/results.md) \
		$(if $(N),-n $(N)) $(if $(SEED),-seed $(SEED)) $(if $(RUN),-run '$(RUN)') $(if $(RETRY),-retry)

# The output has the progress, and ends with a line SIM for each scenario; after a failure, all of it follows.
.PHONY: simulate
simulate: | $(BIN) ## Explore the faults of examples/webapp: each at each write, in virtual time
	@EVENKEEL_LONG=1 go test -C examples/webapp -vet=off -count=1 -v -run '^TestWebAppSurvivesFaults$$' ./simulated 2>&1 | \
		tee $(BIN)/simulate.txt | awk '/ SIM | runs with faults of / { sub(/^ *[a-z_]+\.go:[0-9]+: /, ""); print; fflush() } \
		/^FAIL/ { failed = 1 } END { exit failed }' || { cat $(BIN)/simulate.txt; exit 1; }

# Random operations, on the API server for tests (internal/apiserver) and on kube-apiserver. Without OPS it is what make
# test runs; SEED=2 runs other operations; KINDS=widgets,configmaps runs only operations on these resources. PAGE=1 writes
# docs/reference/conformance.md, if there is no difference.
.PHONY: conformance
conformance: localcluster-binary | $(BIN) ## Compare the API server for tests with kube-apiserver: OPS=10000 SEED=1 KINDS=widgets; PAGE=1 writes docs/reference/conformance.md
	@CONFORMANCE_OPS=$(OPS) CONFORMANCE_SEED=$(SEED) CONFORMANCE_KINDS=$(KINDS) \
		CONFORMANCE_PAGE=$(if $(PAGE),$(CURDIR)/docs/reference/conformance.md) \
		go test -C simulation -vet=off -count=1 -timeout 60m -v ./conformance >$(BIN)/conformance.txt 2>&1; \
	status=$$?; test $$status = 0 || cat $(BIN)/conformance.txt; grep '^CONFORMANCE' $(BIN)/conformance.txt; exit $$status

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME=10s
	@go list -f '{{$$p := .}}{{range .TestGoFiles}}{{$$p.ImportPath}} {{$$p.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$p.ImportPath}} {{$$p.Dir}}/{{.}}{{"\n"}}{{end}}' ./... | \
	while read -r package file; do \
		test -n "$$package" || continue; \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "fuzz: $$package $$name for $(FUZZTIME)"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$$package" </dev/null || exit 1; \
		done; \
	done

.PHONY: cluster
cluster: ## Run a local cluster with controllers and two nodes until Ctrl-C
	@mkdir -p $(BIN)
	go build -o $(BIN)/localcluster ./localcluster/cmd/localcluster && exec $(BIN)/localcluster up --controllers --nodes 2

.PHONY: docs
docs: ## Copy the code samples in the docs from the files that they name
	go run ./dev/internal/docs/update

.PHONY: generate
generate: ## Generate definitions, DeepCopy functions and manifests of examples/webapp and database
	cd examples && go generate ./database/...
	$(MAKE) --no-print-directory -C examples/webapp generate

# Not a part of lint: govulncheck downloads the Go vulnerability database, and CI has no network but the module proxy.
.PHONY: vuln
vuln: $(BIN)/govulncheck ## Look for known vulnerabilities in what each module calls (needs the network)
	@for m in $(MODULES); do echo "vuln: $$m"; $(BIN)/govulncheck -C $$m ./... || exit 1; done

.PHONY: release-check
release-check: ## Build a program in an empty module with the modules of a release; dev/release VERSION prepares one
	dev/release --check

.PHONY: clean
clean: ## Remove what make has built and written
	rm -rf $(BIN)

$(BIN):
	@mkdir -p $@

# Each tool is built once, and again when tools/ names another version of anything it is made of. (`go tool` would link
# it anew on each call.) Its package is the line of dev/tools/go.mod's tool block that ends in its name.
tool_package = $(shell sed -n 's|^[[:space:]]*\([^ ]*/$(notdir $@)\)$$|\1|p' dev/tools/go.mod | head -n 1)
$(BIN)/golangci-lint $(BIN)/govulncheck $(BIN)/benchstat $(BIN)/gofumpt $(BIN)/apidiff: dev/tools/go.mod dev/tools/go.sum | $(BIN)
	@echo "building $(notdir $@) from dev/tools/go.mod$(if $(filter %golangci-lint,$@), (minutes the first time))"
	@go build -C dev/tools -o "$(CURDIR)/$@" $(tool_package)
	@touch $@
