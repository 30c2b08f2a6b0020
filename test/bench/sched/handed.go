package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// handed holds every single change of claims against what is published: at no moment may a GPU be given twice.
type handed struct {
	mutex   sync.Mutex
	devices map[device]*gpu
	has     map[types.UID][]resourcev1.DeviceRequestAllocationResult
	faults  []error
}

// mostFaults bounds how many faults are told.
const mostFaults = 10

func newHanded(slices []resourcev1.ResourceSlice) *handed {
	return &handed{devices: published(slices), has: map[types.UID][]resourcev1.DeviceRequestAllocationResult{}}
}

// see takes in a claim as it is now, or that it has gone.
func (h *handed) see(claim *resourcev1.ResourceClaim, gone bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	before := h.has[claim.UID]
	for i := range before {
		if g := h.devices[deviceOf(&before[i])]; g != nil {
			g.leave(&before[i])
		}
	}
	delete(h.has, claim.UID)
	if gone || claim.Status.Allocation == nil {
		return
	}
	results := claim.Status.Allocation.Devices.Results
	h.has[claim.UID] = results
	for i := range results {
		g := h.devices[deviceOf(&results[i])]
		if g == nil {
			h.fault(fmt.Errorf("claim %s has %s of %s, which nobody publishes", claim.Name, results[i].Device, results[i].Pool))
			continue
		}
		g.take(&results[i])
		if err := g.exceeded(); err != nil {
			h.fault(fmt.Errorf("claim %s got %s of %s: %w", claim.Name, results[i].Device, results[i].Pool, err))
		}
	}
}

func (h *handed) fault(err error) {
	if len(h.faults) < mostFaults {
		h.faults = append(h.faults, err)
	}
}

func deviceOf(result *resourcev1.DeviceRequestAllocationResult) device {
	return device{result.Driver, result.Pool, result.Device}
}

// guard watches over all claims until the function that it returns is called, which says what was given twice.
func (b *bench) guard(ctx context.Context) (end func() error, err error) {
	slices, err := b.slices(ctx)
	if err != nil {
		return nil, err
	}
	claims := b.client.ResourceV1().ResourceClaims(namespace)
	list, err := claims.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the claims: %w", err)
	}
	h := newHanded(slices)
	for i := range list.Items {
		h.see(&list.Items[i], false)
	}
	unheard, err := hear(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: claims.Watch}, func(event watch.Event) {
		if claim, ok := event.Object.(*resourcev1.ResourceClaim); ok {
			h.see(claim, event.Type == watch.Deleted)
		}
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		err := unheard()
		h.mutex.Lock()
		defer h.mutex.Unlock()
		return errors.Join(append(h.faults, err)...)
	}, nil
}
