# The chart's tests and the manifests rendered from it are a module of their own: they need Helm's libraries.

.PHONY: manifests test-chart

manifests: ## rewrite the plain manifests from the chart
	cd test/chart && $(GO) run ./manifests -chart ../../deploy/chart -out ../../deploy/manifests

test-chart: ## the chart, the manifests and the examples, without a cluster
	cd test/chart && $(GO) test -count=1 ./... # a kept result would not know of a changed chart, which is outside of the module

generate: manifests
test-parts: test-chart
