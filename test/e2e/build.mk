# Real Kubernetes on this machine, in namespaces of its own: as root.

.PHONY: e2e e2e-clusters-ready test-clusters test-runtimes test-slots e2e-slots-ready e2e-slots e2e-slots-all e2e-deps e2e-ready demo-k8s bench-k8s

e2e-deps: ## install and build, once, what clusters are made of: runc, Kubernetes, containerd, helm
	hack/e2e-deps.sh v1.36

# What a cluster of the newest version needs; images' packages come from where that installs from.
e2e-ready:
	hack/e2e-deps.sh v1.36
	$(MAKE) --no-print-directory images

# The agent that kills itself after the steps that a test names: no part of what is shipped.
$(B)/test/e2e/crashing: FORCE
	$(GO) build -trimpath -ldflags '-s -w' -o $@ ./test/e2e/crashing

e2e: e2e-clusters-ready ## the whole on real clusters, as root (ONLY=TestName for a part, SHORT=1 without what takes minutes)
	$(MAKE) --no-print-directory test-clusters
	[ -n "$$ONLY" ] || DIVVY_REQUIRE=$(DIVVY_REQUIRE),kubernetes $(MAKE) --no-print-directory test-scheduler test-chart

e2e-clusters-ready: e2e-deps $(B)/test/e2e/crashing
	$(MAKE) --no-print-directory images
	$(call scheduler-image,v1.36)

test-clusters: CLUSTERS ?= ./test/e2e/... ./test/bench/sched
test-clusters: # the part on clusters with nodes, of which two may run at a time
	$(call step,TEST,on real clusters)
	DIVVY_E2E=claims DIVVY_REQUIRE=$(DIVVY_REQUIRE),kubernetes DIVVY_PREFIX=$(abspath $(B)) \
		GO="$(GO)" hack/only.sh "$$ONLY" $(if $(SHORT),-short) -count=1 -p 1 -timeout 100m $(CLUSTERS)

test-runtimes: ## what Divvy relies on in containerd 1.7 and 2 and in CRI-O, without a cluster, as root
	hack/e2e-deps.sh --runtimes
	$(call step,TEST,container runtimes)
	DIVVY_REQUIRE=runtimes,cri-o,$$DIVVY_REQUIRE $(GO) test -count=1 -timeout 10m $(GOTESTFLAGS) ./test/runtimes

# The cluster's own scheduler, as the image that the chart names.
scheduler-image = $(GO) run ./hack/image -out $(B)/images -kubernetes "$$(hack/e2e-deps.sh --folder $(1))" kube-scheduler

e2e-slots-ready test-slots e2e-slots: VERSION ?= v1.35
e2e-slots-ready: $(B)/test/e2e/crashing
	hack/e2e-deps.sh $(VERSION) v1.36
	[ -z "$(CONTAINERD)" ] || hack/e2e-deps.sh --containerd$(subst .,,$(CONTAINERD))
	$(MAKE) --no-print-directory images
	$(call scheduler-image,$(VERSION))

test-slots: # beside other clusters: writes nothing that these read
	$(call step,TEST,mode slots on Kubernetes $(VERSION))
	DIVVY_PREFIX=$(abspath $(B)) $(GO) run ./test/bench/versions -kubernetes "$$(hack/e2e-deps.sh --folder $(VERSION))" -containerd "$(CONTAINERD)" -only "$$ONLY" -part "$$PART" $(if $(SHORT),-short)

e2e-slots: e2e-slots-ready ## mode slots, as root: on VERSION=v1.32 to v1.35, with CONTAINERD=1.7 or the newest; writes docs/measurements (PART=TestName for a part, ONLY=TestName for one that writes nothing)
	$(MAKE) --no-print-directory test-slots VERSION=$(VERSION) CONTAINERD=$(CONTAINERD)

e2e-slots-all: ## mode slots on each version of Kubernetes that has it, and on containerd 1.7
	$(MAKE) e2e-slots VERSION=v1.32 CONTAINERD=1.7
	ONLY=TestSlotsOfReplicas $(MAKE) e2e-slots VERSION=v1.32 CONTAINERD=1.7
	for minor in v1.32 v1.33 v1.34 v1.35; do $(MAKE) e2e-slots VERSION=$$minor || exit; done

demo-k8s: e2e-ready ## three pods want one simulated GPU of a real cluster, as root
	DIVVY_PREFIX=$(abspath $(B)) $(GO) run ./test/demo/k8s

bench-k8s: e2e-ready ## what Divvy costs on a real cluster, as root; writes docs/measurements (ONLY=k8s.freed for a part)
	DIVVY_PREFIX=$(abspath $(B)) $(GO) run ./test/bench/k8s -v -only "$$ONLY"
