package dialect

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

type nvidiaOptions struct {
	// Replicas is how many replicas the device plugin advertises for one GPU. Each has an equal part of the memory, and one
	// alone all of it. Left out, requests for shared GPUs are refused.
	Replicas uint64 `json:"replicas,omitempty"`
	// Renamed is true if the device plugin advertises replicas as nvidia.com/gpu.shared, so that nvidia.com/gpu is a whole
	// GPU. It is false if replicas are advertised as nvidia.com/gpu.
	Renamed *bool `json:"renamed,omitempty"`
}

// nvidia is the form of NVIDIA's device plugin.
func nvidia(given options) (Dialect, error) {
	const gpu, shared = "nvidia.com/gpu", "nvidia.com/gpu.shared"
	var o nvidiaOptions
	if err := given.decode(&o); err != nil {
		return nil, err
	}
	renamed := o.Renamed == nil || *o.Renamed
	if o.Replicas > maxReplicas {
		return nil, given.fault("replicas %d: give 1 to %d", o.Replicas, maxReplicas)
	}
	if !renamed && o.Replicas == 0 {
		return nil, given.fault("renamed false says nothing without replicas")
	}
	return inContainers{
		name:   "nvidia",
		names:  Names{Resources: []string{gpu, shared, migNames}},
		counts: map[string]Measure{gpu: o.count(renamed), shared: countShares},
		request: func(_ *corev1.Pod, asked *limits) Request {
			if request, given := migDevice(asked, gpu, shared); given {
				return request
			}
			whole, _ := asked.number(gpu)
			replicas, _ := asked.number(shared)
			switch {
			case whole > 0 && replicas > 0:
				asked.refuse("%s and %s exclude each other", gpu, shared)
			case whole > 0 && renamed:
				return Request{Count: asked.count(gpu), Whole: true}
			case whole > 0:
				return replica(asked, whole, o.Replicas)
			case renamed:
				return replica(asked, replicas, o.Replicas)
			default:
				asked.refuse("%s is not advertised where replicas go by %s", shared, gpu)
			}
			return Request{}
		},
	}, nil
}

// count is what nvidia.com/gpu counts. Where replicas are shared GPUs of another name, shares count by that name alone.
func (o nvidiaOptions) count(renamed bool) Measure {
	switch {
	case !renamed:
		return countReplicas(o.Replicas)
	case o.Replicas > 0:
		return countWhole
	}
	return countPortions
}

const maxReplicas = 1000

// replica is an equal part of one GPU. A request for more than one is refused: in NVIDIA's system the parts can be of
// one GPU or of several, so the request has no certain size.
func replica(asked *limits, n, replicas uint64) Request {
	switch {
	case replicas == 0:
		asked.refuse("nvidia.com/gpu.shared has no size until the webhook's configuration names replicas")
	case n != 1:
		asked.refuse("%d replicas of a shared GPU have no certain size: ask for 1", n)
	}
	return Request{Count: 1, Memory: v1alpha1.PartOf(1, max(replicas, 1))}
}
