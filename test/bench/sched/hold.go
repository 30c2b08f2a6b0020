package main

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// holdShare makes a claim that has a share already, as the scheduler would have written it. Claims go round the nodes,
// and then round the GPUs of each.
func (b *bench) holdShare(ctx context.Context, k kind, namespace string, i int) error {
	claims := b.client.ResourceV1().ResourceClaims(namespace)
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("share-%05d", i), Namespace: namespace},
		Spec:       k.template.Spec.Spec,
	}
	made, err := claims.Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	device, err := b.sharedDevice(i%b.nodes, i/b.nodes)
	if err != nil {
		return err
	}
	id := uuid.NewUUID()
	consumed := map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacitySlots: resource.MustParse("1")}
	for name, amount := range made.Spec.Devices.Requests[0].Exactly.Capacity.Requests {
		consumed[name] = amount
	}
	made.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{
			Request: made.Spec.Devices.Requests[0].Name, Driver: v1alpha1.Driver, Pool: nodeName(i % b.nodes), Device: device,
			ShareID: &id, ConsumedCapacity: consumed,
		}},
	}}
	_, err = claims.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// sharedDevice names one of the devices of a node that several may have, going round.
func (b *bench) sharedDevice(node, i int) (string, error) {
	all, err := b.inventory.slicesOf(node)
	if err != nil {
		return "", err
	}
	var names []string
	for _, slice := range all {
		for k := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[k]; d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations {
				names = append(names, d.Name)
			}
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("node %d publishes no device for shares", node)
	}
	return names[i%len(names)], nil
}
