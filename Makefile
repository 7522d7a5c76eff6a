# "make" without a target prints the list of targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help

GO ?= go
NPM := $(shell command -v npm)
# With -trimpath no path of this clone is compiled in, so clones and worktrees share the build cache.
# Without the tables of a debugger, everything is compiled in 51 s of processor time where it took 58.
ALL_FLAGS := -trimpath '-gcflags=all=-dwarf=false'
export GOFLAGS := $(ALL_FLAGS) $(GOFLAGS)
# The linter, gotestsum and the generators are compiled like the product, so that the standard library is compiled once for all of them.
TOOL = CGO_ENABLED=0 GOFLAGS="$(ALL_FLAGS)" $(GO) tool
LINT = $(TOOL) -modfile=.ci/lint.mod golangci-lint
GOTESTSUM = $$($(TOOL) -n -modfile=.ci/test.mod gotestsum)

.PHONY: help
help: ## Print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## Build and start Tideline with everything inside; ARGS="..." for other commands
	@exec ./bin/tideline $(ARGS)

.PHONY: example
example: build ## Start Tideline and the example app beside it; DATA=./folder keeps their data
	@exec bash examples/app/run

# The linker sets version and commit. Go records them in the binary only if it can ask git itself.
VERSION := $(shell git describe --tags --match 'v[0-9]*' --dirty=-modified 2>/dev/null)
COMMIT := $(shell git describe --always --abbrev=40 --match '' --dirty=-modified 2>/dev/null)
LDFLAGS = -ldflags '-X tideline/server.version=$(VERSION) -X tideline/server.commit=$(COMMIT)'

# The first build compiles SQLite and some hundred other packages.
.PHONY: build
build: ## Build bin/tideline
	@set -o pipefail; \
	if [ -x bin/tideline ]; then \
	  CGO_ENABLED=0 $(GO) build $(LDFLAGS) -o bin/tideline .; \
	else \
	  echo "The first build downloads and compiles everything, SQLite included: a few minutes. Later ones take seconds."; \
	  all=$$(CGO_ENABLED=0 $(GO) list -deps . | wc -l | tr -d ' '); \
	  CGO_ENABLED=0 $(GO) build -v $(LDFLAGS) -o bin/tideline . 2>&1 | awk -v all=$$all -v tty=$$([ -t 1 ] && echo 1 || echo 0) '\
	    / / { print; next } \
	    { n++ } \
	    tty == 1 { printf "\r\033[Kpackage %d of at most %d: %s", n, all, $$0; fflush(); next } \
	    n % 50 == 0 { printf "package %d of at most %d\n", n, all; fflush() } \
	    END { if (tty == 1) printf "\r\033[K" }'; \
	fi

# SQLite, which is C translated to Go with its own locks, and the Lua interpreter of the in-process Redis are
# compiled without the race detector, which finds nothing there. With it, SQLite is ten times slower; with it in
# SQLite's allocator and the interpreter, a part of the tests of feed/home takes 69 s of processor time instead of 62.
# Packages that share memory by atomic operations, such as go-redis, must keep it, or it reports races that are none.
WITHOUT_RACE = -race=false -d=checkptr=0 -dwarf=false
# Without inlining outside the standard library, the four largest packages (ent, go-redis, graph/generated, pgtype) are compiled
# in 74 s of processor time where they took 114, and the tests of feed/home take as long as before. internal/trace promises to
# allocate nothing where it is inlined. The programs without the race detector, which these tests start, are compiled so too.
CHECK_FLAGS = '-gcflags=all=-l -dwarf=false' '-gcflags=std=-dwarf=false' '-gcflags=tideline/internal/trace...=-dwarf=false' \
  '-gcflags=modernc.org/...=$(WITHOUT_RACE)' '-gcflags=github.com/yuin/gopher-lua/...=$(WITHOUT_RACE)'
test-all flakes lint fuzz bench-test image: export GOFLAGS := $(GOFLAGS) $(CHECK_FLAGS)
test test-all flakes peers bench-test: export TIDELINE_TEST_REQUIRE_REAL = 1
# A cached PostgreSQL data directory that already has the tables. Each server of the tests starts with a copy.
test test-all flakes: export TIDELINE_TEST_CACHE = $(CURDIR)/.test/cache
# A program with the race detector sleeps for a second before it exits. More than a hundred of them end in a run.
test-all flakes bench-test fuzz: export GORACE ?= atexit_sleep_ms=100

# Continuous integration repeats a failed test once and reports that, because it looks for what a
# change broke. A developer's run repeats nothing.
ONCE_MORE = --rerun-fails=1 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report=.test/repeated

# With the race detector, Go chooses how many tests run at once. Four packages of four tests each on
# two processors gave a load of 23 and took up to seven times as long, and tests of leases failed.
# The packages that take longest come first, so that none of them runs alone at the end. The tests run without go vet,
# which took 40 s more; "make lint" runs it. They are linked without the tables of a debugger, which
# take a quarter of the processor time of linking: 1.7 of 6.4 s for the tests of graph.
ALL = ./web/browsertest ./workers ./feed/stream ./feed/home ./e2e $(WAITING) ./storage ./live ./e2e/... ./feed/... ./...
# Packages that wait much, each beside one that computes. At the end, they left a quarter of the processors idle.
WAITING = ./oracle ./feed ./server/transport ./feed/account ./queue ./graph ./server
RUN_TESTS = $(GOTESTSUM) --format-hide-empty-pkg --jsonfile-timing-events=.test/results.json --post-run-command='bash .ci/totals' \
  $(if $(CI),$(ONCE_MORE)) --packages='$(or $(PKGS),$(ALL))' -- $(if $(COUNT),-count=$(COUNT)) $(PACKAGES) -vet=off -ldflags=-w -timeout=25m $(if $(RUN),-run '$(value RUN)')

.PHONY: test
# Without cgo, the tests use the packages that "make run" has already compiled.
test: export CGO_ENABLED = 0
# Tests mostly wait: four packages at once take three quarters of the time that two take.
test: PACKAGES = -p 4
# The results of packages that did not change are reused, except where tests start programs that
# "go test" knows nothing about; storagetest.RunEveryTime explains it. COUNT=1 runs all of them.
test: export TIDELINE_TEST_RUN := $(shell date +%s)
test: ## Run the fast tests on all databases, in minutes; for some of them: PKGS=./live RUN=TestName COUNT=50
	@mkdir -p .test; rm -f .test/repeated
# The compiler fills the pauses of the downloads.
	@$(if $(RUN)$(PKGS),,$(GO) build ./... >/dev/null 2>&1 & )\
	  $(MAKE) --no-print-directory deps $(if $(RUN)$(PKGS),,$(if $(NPM),&& $(MAKE) --no-print-directory kit)); status=$$?; wait; exit $$status
	@$(RUN_TESTS) $(if $(PKGS),,-short)

.PHONY: test-all
test-all: COUNT = 1
# Three packages at once: with two, a tenth of the time of the processors is left over, because many tests wait.
test-all: PACKAGES = -p 3
test-all: deps e2e-deps $(if $(RUN)$(PKGS),,$(if $(NPM),kit)) ## Run all tests with the race detector; for some of them: PKGS=./live RUN=TestName COUNT=50
	@mkdir -p .test; rm -f .test/repeated
	@$(RUN_TESTS) -race

.PHONY: check
# Two of them run at a time, because each downloads or waits for a while. verify writes the generated files,
# so lint and image, which read them, come after it. test-all, whose tests load both processors by themselves,
# runs alone.
TWO = $(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync)
check: ## Run everything that continuous integration runs: lint, verify, deploy, image, fuzz, bench-test, kit, test-all
	@$(TWO) deps linter
	@$(TWO) verify deploy e2e-deps peers-deps
	@$(TWO) lint image
	@$(TWO) bench-test fuzz $(if $(NPM),kit)
	@$(MAKE) --no-print-directory -o kit test-all # without kit again

.PHONY: deploy
deploy: ## Check the files in deploy with promtool, nginx, Caddy, systemd and helm; GORELEASER=on adds goreleaser
	@GORELEASER=$(GORELEASER) bash .ci/deploy

.PHONY: image
image: ## Build the image without docker, run it confined, and check what docs/deploy.md says about it
	@bash .ci/image

.PHONY: release
release: ## Build the programs of a release into dist, with checksums and module lists; publish nothing
	@GOFLAGS= $(GO) run github.com/goreleaser/goreleaser/v2@v2.16.0 release --snapshot --clean

.PHONY: flakes
flakes: PKGS = ./feed/... ./live ./queue ./workers ./timeline ./server/...
flakes: COUNT = 20
flakes: deps ## Run tests COUNT=20 times under CPU load and count the failures of each; PKGS="./live ./queue"
	@bash .ci/flakes $(COUNT) $(PKGS)

# These tests limit their own time.
MINUTES = $(GO) test -v -count=1 -timeout=0
chaos soak resume transfer alarms upgrade: export TIDELINE_TEST_REQUIRE_REAL = 1
chaos soak resume: FOR = 10m

.PHONY: chaos
chaos: deps e2e-deps ## Inject faults under load for FOR=10m and look for lost data; SEED=1 repeats the faults, ONLY=snapshot,killed
	@$(MINUTES) -run '^TestChaos$$' ./e2e/chaos -args -for='$(FOR)' -seed='$(or $(SEED),0)' -only='$(ONLY)'

.PHONY: soak
soak: deps e2e-deps ## Load one server and one worker for FOR=10m; memory, files, keys and rows must return to their initial level
	@$(MINUTES) -run '^TestSoak$$' ./e2e/soak -args -for='$(FOR)'

.PHONY: resume
resume: deps e2e-deps ## Kill, cut off and wipe for FOR=10m while the client kit reads: nothing missing, doubled or leaked
	@$(MINUTES) -run '^TestNothingIsLostSilently' ./e2e/resume -args -for='$(FOR)'

.PHONY: transfer
transfer: SIZE = 1
transfer: deps ## Import and export SIZE=1 times 100,000 users, 1,000,000 follows, 300,000 posts; compare and print the speed
	@$(MINUTES) -run '^TestTransfer$$' ./e2e/transfer -args -size='$(SIZE)'

.PHONY: alarms
alarms: deps ## Cause real faults and check that Prometheus alerts fire and then end; ONLY=Webhooks for some of them
	@bash .ci/tool prometheus prometheus >/dev/null || { echo "There is no Prometheus here, and none could be unpacked."; exit 1; }
	@$(MINUTES) $(if $(ONLY),-run '$(ONLY)') ./e2e/alarms -args -need

.PHONY: upgrade
upgrade: FOR = 5m
upgrade: deps e2e-deps ## Upgrade from the previous release under load for FOR=5m, one process at a time, with some rollbacks
	@$(MINUTES) -run '^TestRollingUpgrade$$' ./e2e/upgrade -args -for='$(FOR)'

.PHONY: deps
deps:
	@bash .ci/deps
	@$(if $(NPM),$(MAKE) --no-print-directory web/node_modules/.package-lock.json e2e/node_modules/.package-lock.json clients/typescript/build/.tsbuildinfo,:)

.PHONY: linter
linter:
	@echo "linter: building it, some minutes the first time"
	@$(LINT) version >/dev/null || : # lint says what it cannot do then

.PHONY: lint
# The linter reads what the compiler made. With -race, the tests of "make check" use the same, so
# everything is compiled once. -race needs the C compiler that deps installs. It reads both modules of the
# workspace at once, which takes 178 s of processor time and 4 GB; one after the other took 298 s and 3 GB.
lint: deps linter ## Check the format and the rules in .golangci.yml, including go vet
	@files=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go' | while read -r f; do [ -f "$$f" ] && echo "$$f"; done)); \
	  if [ -n "$$files" ]; then echo "not formatted (gofmt -w):"; echo "$$files"; exit 1; fi
	@if ! $(LINT) version >/dev/null; then \
	  echo "LINT SKIPPED: golangci-lint could not be built; only gofmt and go vet run."; \
	  $(GO) vet ./... && $(GO) -C bench vet ./...; \
	else \
	  linter=$$($(LINT:tool=tool -n)) && cd bench && GOGC=200 GOFLAGS="$$GOFLAGS -race" $$linter run ./... ../...; \
	fi

FUZZTIME = 2s

.PHONY: fuzz
fuzz: ## Fuzz untrusted input briefly; FUZZTIME=1m per target for longer
	@bash .ci/fuzz $(FUZZTIME)

GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.1.4

.PHONY: vuln
vuln: ## Look for known vulnerabilities in the code that is called; VULNDB=URL asks another database
	@out=$$($(GO) run $(GOVULNCHECK) $(if $(VULNDB),-db $(VULNDB)) ./... 2>&1); status=$$?; echo "$$out"; \
	if [ $$status != 0 ] && grep -q 'fetching vulnerabilities' <<<"$$out"; then \
	  echo "NOT CHECKED: the database of vulnerabilities cannot be reached from here."; \
	else exit $$status; fi

.PHONY: generate
generate: export CGO_ENABLED = 0
generate: ## Regenerate ent, the API, schema.graphql, and the table of packages in docs/architecture.md
	@$(GO) generate ./ent # first, because the API's code is generated from the ent types
	@$(GO) generate .
	@$(GO) run .ci/schema.go
	@$(GO) run .ci/packages.go

.PHONY: migration
migration: ## Write the migration for a changed schema, or update the checksum of an edited one: NAME=add-something
	@test -n "$(NAME)" || { echo 'say what it does: make migration NAME=add-something'; exit 1; }
	@TIDELINE_TEST_REQUIRE_REAL=1 $(GO) test -count=1 -v -run '^TestMigrations(LeaveNoDifferenceFromTheSchema|DropNoTableOfSQLite)$$' ./storage \
	  -args -migration='$(NAME)' $(if $(FROM_SCRATCH),-from-scratch)

GENERATED = ent graph/generated graph/model schema.graphql docs/architecture.md $(if $(NPM),web/dist web/app/schema.d.ts)

.PHONY: verify
verify: ## Regenerate everything; fail if that changes a file
	@sums() { find $(GENERATED) -type f -exec cksum {} + | LC_ALL=C sort -k3; }; \
	before=$$(sums); \
	$(MAKE) --no-print-directory generate $(if $(NPM),web,) || exit 1; \
	if ! diff <(echo "$$before") <(sums) >/dev/null; then \
	  echo "generated files were not up to date; now they are, commit them:"; \
	  diff <(echo "$$before") <(sums) | awk '/^[<>]/ { print "  " $$4 }' | sort -u; \
	  exit 1; \
	fi
	@$(if $(NPM),,echo "WEB NOT VERIFIED: there is no npm here")

.PHONY: web
web: web/node_modules/.package-lock.json ## Build the app and GraphiQL into web/dist
	@npm --prefix web run --silent schema
	@npm --prefix web run --silent check
	@npm --prefix web run --silent build >/dev/null

.PHONY: kit
kit: clients/typescript/node_modules/.package-lock.json ## Build the client kit, print its size, run its tests; RUNS=20000 for more of them
	@npm --prefix clients/typescript run --silent check

.PHONY: e2e-deps
e2e-deps: $(if $(NPM),$(addsuffix /node_modules/.package-lock.json,web e2e e2e/hostile examples/typescript examples/caches) clients/typescript/build/.tsbuildinfo)
	@$(if $(NPM),:,echo "NO npm HERE: the packages that need it are not installed")

# Tests of several packages compile the kit. It is compiled here first, so that they do not do so at the same time.
clients/typescript/build/.tsbuildinfo: clients/typescript/node_modules/.package-lock.json clients/typescript/tsconfig.json $(wildcard clients/typescript/src/*.ts clients/typescript/test/*.ts)
	@node clients/typescript/node_modules/typescript/bin/tsc --project clients/typescript
	@touch $@

%/node_modules/.package-lock.json: %/package-lock.json
	npm --prefix $* ci --no-audit --no-fund
	@touch $@

.PHONY: bench
bench: bin/bench ## Put load on a running server; ARGS="--help" prints the options
	@exec ./bin/bench $(ARGS)

# bench is a module of its own, so ./... of this one does not include it.
.PHONY: bin/bench
bin/bench:
	@CGO_ENABLED=0 $(GO) -C bench build -o ../bin/bench .

.PHONY: peers
peers: BENCH = Page|Live|Reconnect
peers: ROUNDS = 3
peers: peers-deps ## Compare Tideline with gqlgen, PostGraphile, centrifuge and gorilla, ten minutes; BENCH=Live ROUNDS=1 ARGS="-subscribers=1000"
	@bash .ci/deps
	@$(GO) -C bench/peers test -run - -bench '$(value BENCH)' -benchtime 1x -timeout 0 . -args -rounds=$(ROUNDS) $(ARGS)

.PHONY: model
model: SEED = 10000
model: ## Measure the constants of docs/capacity.md with SEED=10000 more users; ARGS="--for 100000000 --save model.json"
	@bash .ci/deps
	@$(MAKE) --no-print-directory build bin/bench
	@bash .ci/model $(SEED) $(ARGS)

.PHONY: peers-deps
peers-deps: $(if $(NPM),bench/peers/postgraphile/node_modules/.package-lock.json)
	@$(if $(NPM),:,echo "NO npm HERE: PostGraphile is left out")

.PHONY: bench-test
bench-test: peers-deps ## Run the tests of bench and its peers, with the race detector
	@bash .ci/deps
	@$(GO) -C bench test -race -vet=off -ldflags=-w -count=1 ./...

.PHONY: clean
clean: ## Remove everything that was built here
	rm -rf bin .test web/node_modules e2e/node_modules e2e/hostile/node_modules
	rm -rf bench/peers/postgraphile/node_modules
	rm -rf $(foreach made,node_modules build __generated__,$(addsuffix /$(made),examples/typescript examples/caches clients/typescript))
