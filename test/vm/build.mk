# The guest of test/vm: what it boots with, and tests inside.

VM_KIT := .cache/vm-kit
# Kernel modules of our own, by the folders of test/vm that have them.
VM_MODULES := $(B)/vm/host_driver.ko $(B)/vm/soft_card.ko

.PHONY: vm-kit test-vm test-vm-whole test-libvirt vm-parts

vm-kit: ## QEMU, a kernel and tools for the guest of test/vm, unpacked into .cache/vm-kit; installs nothing
	$(call step,KIT,$(VM_KIT))
	hack/vm-kit.sh $(VM_KIT)

$(B)/vm/init: FORCE
	$(call step,GO)
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $@ ./test/vm/init
$(B)/vm/exec: FORCE
	$(call step,GO)
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $@ ./test/vm/exec
# The program that tests in the guest run.
$(B)/vm/bin/divvy: FORCE
	$(call step,GO)
	$(GO) build -ldflags '-s -w' -o $@ ./cmd/divvy

# Built against the headers of the kit's kernel, whose own makefile names the folder that a package installs them in.
VM_HEADERS = $(wildcard $(VM_KIT)/tree/usr/src/linux-headers-*-amd64)
$(B)/vm/host_driver.ko: $(wildcard test/vm/driver/*)
$(B)/vm/soft_card.ko: $(wildcard test/vm/card/*)
$(VM_MODULES): $(B)/vm/%.ko: $(wildcard $(VM_KIT)/.complete)
	$(call step,KMOD)
	mkdir -p $(@D)/$*
	cp $(filter test/vm/%,$^) $(@D)/$*/
	$(MAKE_COMMAND) --silent -C $(VM_HEADERS) -f $(abspath $(patsubst %-amd64,%-common,$(VM_HEADERS)))/Makefile \
		KERNELRELEASE=$(patsubst linux-headers-%,%,$(notdir $(VM_HEADERS))) ARCH=x86 CONFIG_DEBUG_INFO_BTF_MODULES= M=$(abspath $(@D)/$*) modules
	mv $(@D)/$*/$*.ko $@

# Plugins of CNI, from their modules. The last one has no name of its own there.
VM_PLUGINS := main/macvlan main/ipvlan main/host-device ipam/host-local
$(B)/vm/cni/.made: test/vm/cni/go.mod
	$(call step,GO,$(B)/vm/cni)
	mkdir -p $(@D)
	CGO_ENABLED=0 $(GO) build -C test/vm/cni -ldflags '-s -w' -o $(abspath $(@D))/ $(VM_PLUGINS:%=github.com/containernetworking/plugins/plugins/%)
	CGO_ENABLED=0 $(GO) build -C test/vm/cni -ldflags '-s -w' -o $(abspath $(@D))/whereabouts github.com/k8snetworkplumbingwg/whereabouts/cmd
	touch $@

vm-parts: $(B)/vm/init $(B)/vm/exec $(B)/vm/bin/divvy $(COVER) $(if $(wildcard $(VM_KIT)/.complete),$(VM_MODULES) $(B)/vm/cni/.made)

# Packages whose tests run in the guest that has all, each in a boot of its own, and the other shapes in which hosts are judged.
VM_PACKAGES := ./test/vm/hosts ./test/vm/cards $(if $(SHORT),,./test/vm/suite ./test/vm/claims ./test/vm/binding ./internal/backend/vgpu)
VM_SHAPES := iommu-none iommu-off no-remapper
# Two guests run at a time: a test is mostly one thread of emulation. The program that limits containers is for the tests of cards, divvy
# for those of claims.
IN_GUEST = GO="$(GO)" hack/only.sh "$$ONLY" -exec "$(abspath $(B)/vm/exec) -shape $(1) -with $(B)/vm/bin -with $(COVER)" -p 2 -count=1 -timeout 20m -v $(2)

test-vm: test-vm-whole ## tests inside a guest of QEMU; without make vm-kit each says SKIP (ONLY=TestName for a part, SHORT=1 for two packages)
	[ -n "$${ONLY}$(SHORT)" ] || for shape in $(VM_SHAPES); do $(call IN_GUEST,$$shape,./test/vm/hosts) || exit; done
	[ -n "$${ONLY}$(SHORT)" ] || DIVVY_VM=1 $(GO) test -count=1 -timeout 20m -run 'TestGuestsEnd|TestArguments|TestQEMU' -v ./test/vm/exec ./test/vm/kit
test-vm-whole: vm-parts ## of these the tests in the guest that has all
	$(call step,TEST,in a guest)
	$(call IN_GUEST,whole,$(VM_PACKAGES))
	[ -n "$${ONLY}$(SHORT)" ] || $(GO) test -C test/vm/cni -exec "$(abspath $(B)/vm/exec) -with $(B)/vm/cni -with docs/rdma.md" -count=1 -timeout 20m -v .

test-libvirt: ## hold what is printed for libvirt and KubeVirt against their own schema and types; installs nothing
	$(call step,TEST,against libvirt and KubeVirt)
	hack/libvirt.sh .cache/libvirt
	DIVVY_REQUIRE=libvirt,$$DIVVY_REQUIRE $(GO) test -count=1 $(GOTESTFLAGS) ./test/vm/libvirt
	cd test/vm/kubevirt && $(GO) test -count=1 $(GOTESTFLAGS) .
