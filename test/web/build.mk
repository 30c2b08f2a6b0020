# What drives a browser is a module of its own: no program depends on it.

.PHONY: test-web bench-web

test-web: ## the web pages in Debian's Chromium, with axe-core; downloads them, installs nothing; pictures in build/web
	$(call step,TEST,web pages)
	hack/chromium.sh .cache/chromium
	cd test/web && DIVVY_REQUIRE=chromium,$$DIVVY_REQUIRE $(GO) test -count=1 -timeout 5m ./...

bench-web: # the figures ops.page of bench-ops
	$(call step,BENCH,web pages)
	hack/chromium.sh .cache/chromium
	cd test/web && $(GO) run ./bench -root ../.. -out ../../docs/measurements/ops.json -only "$$ONLY"
