# The chart's tests and the manifests rendered from it are a module of their own: they need Helm's libraries.

.PHONY: manifests test-chart

manifests: ## rewrite the plain manifests from the chart
	cd test/chart && $(GO) run ./manifests -chart ../../deploy/chart -out ../../deploy/manifests

test-chart: ## the chart, the manifests and the examples, without a cluster
	cd test/chart && $(GO) test ./...

generate: manifests
test: test-chart
