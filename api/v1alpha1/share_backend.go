package v1alpha1

// validateBackend tells of what the backend cannot make real.
func (c *ShareConfig) validateBackend(cores int, fault func(format string, args ...any)) {
	switch c.Backend {
	case BackendSlice, BackendRemote:
	case BackendTimeslice:
		const equal = "backend timeslice leaves GPU time to the driver, which gives every process the same: leave out %s, or use backend slice"
		if cores > 0 {
			fault(equal, "cores")
		}
		if c.Weight > 1 {
			fault(equal, "the weight")
		}
		if c.Class == ClassOffline {
			fault(equal, "class offline")
		}
	case BackendMPS:
		c.validateMPS(cores, fault)
	case BackendMIG:
		c.validateMIG(fault)
	case BackendPassthrough, BackendVF, BackendVGPU:
		fault("backend %s gives a device to a virtual machine, and no program of this machine can use it: `divvy vm claim` does that", c.Backend)
	default:
		fault("backend %q is not known: use slice, timeslice, mps, mig or remote", c.Backend)
	}
}

// validateMPS tells of what MPS has no means for: it knows a ceiling on the SMs of a process and no order among processes.
func (c *ShareConfig) validateMPS(cores int, fault func(format string, args ...any)) {
	if c.Policy == PolicyBurst {
		fault("backend mps cannot lend SMs beyond a ceiling: leave out policy burst and give the ceiling as cores, or use backend slice")
	}
	if c.Policy == PolicyWeighted && cores > 0 {
		fault("backend mps guarantees no cores, it makes them a ceiling on SMs: leave out policy weighted, or use backend slice")
	}
	if c.Weight > 1 {
		fault("backend mps divides SMs by ceilings and not by weights: leave out the weight and give cores, or use backend slice")
	}
	if c.Class == ClassOffline {
		fault("backend mps runs all shares side by side, and none gives way: leave out class offline, or use backend slice")
	}
}

// validateMIG tells of what an instance has no means for: it is its tenant's alone, so nothing is divided there.
func (c *ShareConfig) validateMIG(fault func(format string, args ...any)) {
	const alone = "backend mig gives the share an instance of its own: leave out %s, or add --backend slice to divide an instance"
	if c.Policy == PolicyBurst {
		fault(alone, "policy burst")
	}
	if c.Weight > 1 {
		fault(alone, "the weight")
	}
	if c.Class == ClassOffline {
		fault(alone, "class offline")
	}
}
