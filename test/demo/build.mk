.PHONY: demo
demo: build ## three tenants on one simulated GPU; GPU=real uses the machine's own
	$(GO) run ./test/demo -prefix $(abspath $(B)) $(if $(filter real,$(GPU)),-real)
