.PHONY: demo
demo: build ## three tenants on one simulated GPU; GPU=real uses the machine's own
	$(GO) run ./test/demo -prefix $(abspath $(B)) $(if $(filter real,$(GPU)),-real)
.PHONY: demo-remote
demo-remote: build ## two hosts in namespaces, of which one has a simulated GPU that a program on the other uses; no root
	$(GO) run ./test/demo/remote -prefix $(abspath $(B))
.PHONY: demo-swap
demo-swap: build $(B)/bin/gpubench ## two tenants of 3 GiB on a simulated GPU of 4 take turns, and thrash without; an idle one sleeps; no root
	$(GO) run ./test/demo/swap -prefix $(abspath $(B))
