package chart_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/test/chart/render"
	resourcev1 "k8s.io/api/resource/v1"
)

// Which RDMA cards are published, and with which shares, is what the agent reads of the chart's values. Where cards are left to others
// there are no classes of them. None of the classes has an extended resource, for which Multus would want a card.
func TestNICs(t *testing.T) {
	usual := agentconfig.NICs{Slots: 64, Handles: 64, Objects: 65536}
	for values, change := range map[string]func(*agentconfig.NICs){
		"":                     func(*agentconfig.NICs) {},
		"agent: {nics: auto}":  func(*agentconfig.NICs) {},
		"agent: {nics: off}":   func(n *agentconfig.NICs) { n.Off = true },
		`agent: {nics: "off"}`: func(n *agentconfig.NICs) { n.Off = true },
		"agent: {nics: [mlx5_1, \"0000:81:00.0\"]}":       func(n *agentconfig.NICs) { n.Names = []string{"mlx5_1", "0000:81:00.0"} },
		"agent: {nicShares: {slots: 8, objects: 100000}}": func(n *agentconfig.NICs) { n.Slots, n.Objects = 8, 100000 },
	} {
		want := usual
		change(&want)
		documents := rendered(t, newest, values)
		text := configured(t, documents, "agent.yaml")
		config, err := agentconfig.Parse("agent.yaml", []byte(text), nil)
		if err != nil || !reflect.DeepEqual(config.NICs(), want) {
			t.Errorf("%q: %+v, %v\n%s", values, config.NICs(), err, text)
		}
		var classes []string
		for _, class := range find[*resourcev1.DeviceClass](t, documents) {
			if class.Name == v1alpha1.ClassNIC || class.Name == v1alpha1.ClassNICFunction {
				classes = append(classes, class.Name)
				if class.Spec.ExtendedResourceName != nil {
					t.Errorf("class %s has the extended resource %s", class.Name, *class.Spec.ExtendedResourceName)
				}
			}
		}
		if slices.Sort(classes); want.Off != (classes == nil) || !want.Off && !slices.Equal(classes, []string{v1alpha1.ClassNICFunction, v1alpha1.ClassNIC}) {
			t.Errorf("%q: the classes are %v", values, classes)
		}
	}
	for _, values := range []string{
		"agent: {nics: on}", "agent: {nics: all}", "agent: {nics: []}", "agent: {nics: [a b]}", "agent: {nics: [mlx5_0, mlx5_0]}", "agent: {nics: {mlx5_0: true}}",
		"agent: {nicShares: {slots: 0}}", "agent: {nicShares: {bandwidth: 1}}", "agent: {nicShares: {handles: many}}",
	} {
		if _, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: newest, Values: values}); err == nil {
			t.Errorf("%q is taken", values)
		}
	}
}
