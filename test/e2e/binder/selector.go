package binder

import (
	"context"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// selects evaluates a selector of a request as the scheduler does those of
// claims, over what a node says of a GPU.
func selects(ctx context.Context, expression string, g v1alpha1.NodeGPU) (bool, error) {
	compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{})
	if compiled.Error != nil {
		return false, fmt.Errorf("read selector %q: %w", expression, compiled.Error)
	}
	index, numa := int64(g.Index), int64(g.NUMANode)
	device := cel.Device{
		Driver: v1alpha1.Driver,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			v1alpha1.AttributeUUID:     {StringValue: &g.UUID},
			v1alpha1.AttributeModel:    {StringValue: &g.Model},
			v1alpha1.AttributeIndex:    {IntValue: &index},
			v1alpha1.AttributeNUMANode: {IntValue: &numa},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			v1alpha1.CapacityMemory: {Value: *resource.NewQuantity(int64(g.Memory), resource.BinarySI)},
		},
	}
	matches, _, err := compiled.DeviceMatches(ctx, device)
	if err != nil {
		return false, fmt.Errorf("evaluate selector %q: %s", expression, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return matches, nil
}
