package demand

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// remote judges a request for GPUs that nodes reach through the network. The allocator puts a pod where its GPUs are, so
// Kubernetes' own places these, and the ledger counts what it finds. The error is [ErrElsewhere] for a request that can be placed.
func (r *reader) remote(w *way, config v1alpha1.ShareConfig) error {
	if err := dialect.CheckReached(r.claim.Spec); err != nil {
		return err
	}
	asked, err := asks(w.capacity)
	if err != nil {
		return err
	}
	if backend := v1alpha1.SharesOf(w.class); backend != "" && config.Backend != "" && config.Backend != backend {
		return fmt.Errorf("its configuration asks for backend %s, and class %s gives backend %s: write class %s",
			config.Backend, w.class, backend, v1alpha1.ClassOf(config.Backend))
	}
	config.Backend = v1alpha1.BackendRemote
	config.Default(asked.cores)
	if err := config.Validate(asked.cores); err != nil {
		return err
	}
	return fmt.Errorf("%w: nodes reach such GPUs through the network", ErrElsewhere)
}

// isReached reports whether a result is of such a GPU.
func isReached(r *resourcev1.DeviceRequestAllocationResult) bool {
	_, ok := v1alpha1.HostOfPool(r.Pool)
	return ok && r.Driver == v1alpha1.Driver
}
