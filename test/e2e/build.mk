# Real Kubernetes on this machine, in namespaces of its own: as root.

.PHONY: e2e e2e-deps demo-k8s bench-k8s

e2e-deps: ## install and build, once, what clusters are made of: runc, Kubernetes, containerd, helm
	hack/e2e-deps.sh

e2e: e2e-deps images ## the whole on a real cluster, as root (ONLY=TestName for a part)
	DIVVY_E2E=1 DIVVY_PREFIX=$(abspath $(B)) $(GO) test -count=1 -p 1 -timeout 45m $(if $(ONLY),-v -run '$(ONLY)') ./test/e2e/...

demo-k8s: images ## three pods want one simulated GPU of a real cluster, as root
	@hack/e2e-deps.sh v1.36
	DIVVY_PREFIX=$(abspath $(B)) $(GO) run ./test/demo/k8s

bench-k8s: images ## what Divvy costs on a real cluster, as root; writes docs/measurements/k8s.json
	@hack/e2e-deps.sh v1.36
	DIVVY_PREFIX=$(abspath $(B)) $(GO) run ./test/bench/k8s -v
