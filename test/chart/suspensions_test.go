package chart_test

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiadmission "k8s.io/apiserver/pkg/admission"
)

// noted is a claim with an order and a label.
func noted(order, node string) runtime.Object {
	claim := &resourcev1.ResourceClaim{}
	claim.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"))
	if order != "" {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, v1alpha1.SuspendAnnotation, order)
	}
	if node != "" {
		metav1.SetMetaDataLabel(&claim.ObjectMeta, v1alpha1.SuspendNodeLabel, node)
	}
	return claim
}

func TestSuspensionsAreTheSchedulers(t *testing.T) {
	const refusal = " may not have claims leave their GPUs or come back: Divvy's scheduler alone writes the annotation divvy.dev/suspend and the label divvy.dev/suspend-node"
	p := policies(t, rendered(t, newest, "scheduler: {enabled: true}"))["divvy-suspensions"]
	for _, c := range []struct {
		name, user string
		operation  apiadmission.Operation
		old, new   runtime.Object
		refused    bool
	}{
		{"ours", scheduler, apiadmission.Update, noted("", ""), noted("x", "n1"), false},
		{"ours takes it away", scheduler, apiadmission.Update, noted("x", "n1"), noted("", ""), false},
		{"a tenant writes it", "ada", apiadmission.Update, noted("", ""), noted("x", ""), true},
		{"a tenant labels it", "ada", apiadmission.Update, noted("", ""), noted("", "n1"), true},
		{"a tenant takes it away", "ada", apiadmission.Update, noted("x", "n1"), noted("", "n1"), true},
		{"a tenant takes the label away", "ada", apiadmission.Update, noted("x", "n1"), noted("x", ""), true},
		{"a tenant changes it", "ada", apiadmission.Update, noted("x", "n1"), noted("y", "n1"), true},
		{"a tenant creates it", "ada", apiadmission.Create, nil, noted("x", "n1"), true},
		{"a template has it", manager, apiadmission.Create, nil, noted("x", ""), true},
		{"the node's agent", agent, apiadmission.Update, noted("x", "n1"), noted("", ""), true},
		{"a claim as usual", "ada", apiadmission.Create, nil, noted("", ""), false},
		{"something else of it", "ada", apiadmission.Update, noted("x", "n1"), noted("x", "n1"), false},
	} {
		want := ""
		if c.refused {
			want = "user " + c.user + refusal
		}
		if got := p.refused(t, attempt{c.user, "", c.operation, "", c.old, c.new}); got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
	if p := policies(t, rendered(t, oldest, ""))["divvy-suspensions"]; p != nil {
		t.Error("a policy about claims where there are none")
	}
}

// answered is a claim with a device of each driver, given as driver/node, with a condition of the device's in its status.
func answered(drivers, told, condition string) runtime.Object {
	made, _ := allocated(drivers, "p").(*resourcev1.ResourceClaim)
	for _, one := range strings.Fields(told) {
		driver, node, _ := strings.Cut(one, "/")
		made.Status.Devices = append(made.Status.Devices, resourcev1.AllocatedDeviceStatus{
			Driver: driver, Pool: node, Device: "a", Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "R"}},
		})
	}
	return made
}

func TestAgentsAreConfinedToTheirDevicesStatus(t *testing.T) {
	const own, elsewhere, other = v1alpha1.Driver + "/n1", v1alpha1.Driver + "/n2", "gpu.example.com/n1"
	const devices, rest = "the agent of node n1 may only write the status of its own devices", "the agent of node n1 may only write the status of devices"
	p := policies(t, rendered(t, newest, ""))["divvy-agent-claims"]
	for _, c := range []struct {
		name, user, node string
		old, new         runtime.Object
		want             string
	}{
		{"its own", agent, "n1", answered(own, "", ""), answered(own, own, "Suspended"), ""},
		{"its own again", agent, "n1", answered(own, own, "Suspended"), answered(own, own, "Ready"), ""},
		{"its own no more", agent, "n1", answered(own, own, "Suspended"), answered(own, "", ""), ""},
		{"beside another driver's", agent, "n1", answered(own, other, "Ready"), answered(own, other, "Ready"), ""},
		{"another node's", agent, "n1", answered(own, "", ""), answered(own, elsewhere, "Suspended"), devices},
		{"another node's no more", agent, "n1", answered(own, elsewhere, "Suspended"), answered(own, "", ""), devices},
		{"another driver's", agent, "n1", answered(own, other, "Ready"), answered(own, other, "Down"), devices},
		{"the allocation", agent, "n1", answered("", "", ""), answered(own, "", ""), rest},
		{"the reservations", agent, "n1", allocated(own, "p"), allocated(own, "p q"), rest},
		{"a token of no node", agent, "", answered(own, "", ""), answered(own, "", ""), "the agent of node  may only write the status of devices"},
		{"somebody else", scheduler, "", answered(own, "", ""), answered(own, elsewhere, "Suspended"), ""},
	} {
		if got := p.refused(t, attempt{c.user, c.node, apiadmission.Update, "status", c.old, c.new}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
