# The chart's tests and the manifests rendered from it are a module of their own: they need Helm's libraries.

.PHONY: manifests test-chart

manifests: versions ## rewrite the plain manifests from the chart
	$(call step,GEN,deploy/manifests)
	cd test/chart && $(GO) run ./manifests -chart ../../deploy/chart -out ../../deploy/manifests

test-chart: ## the chart, the manifests and the examples, without a cluster
	$(call step,TEST,the chart)
	cd test/chart && $(GO) test -count=1 ./... # a kept result would not know of a changed chart, which is outside of the module

generate: manifests
test-parts: test-chart
