package kube

import (
	"errors"
	"log/slog"
	"maps"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/backend"
)

const formed = "GPU-00000000-0000-4000-8000-000000000001"

// giver is an agent with one GPU.
type giver struct {
	given     v1alpha1.Backend
	layout    string
	tenancies []agent.Tenancy
	division  backend.Division
	uses      []agent.InstanceUse
	order     []layouts.Choice
}

func (g *giver) Division(string) (backend.Division, string, <-chan struct{}) {
	return g.division, "", nil
}
func (g *giver) InstanceUses() []agent.InstanceUse   { return g.uses }
func (g *giver) Preferred([]string) []layouts.Choice { return g.order }

func (g *giver) GPUs() []backend.GPU        { return []backend.GPU{{UUID: formed}} }
func (g *giver) Tenancies() []agent.Tenancy { return g.tenancies }

func (g *giver) Given() (map[string]agentconfig.Form, <-chan struct{}) {
	if g.given == "" {
		return nil, nil
	}
	return map[string]agentconfig.Form{formed: {Backend: g.given, Layout: g.layout}}, nil
}

func (g *giver) has(b v1alpha1.Backend) {
	g.tenancies = []agent.Tenancy{{Key: "a", Shares: []agent.TenancyShare{{UUID: formed, Config: v1alpha1.ShareConfig{Backend: b}}}}}
}

// cluster is an API server with what the node publishes.
type formCluster struct {
	*fake.Clientset
	*giver
	*forms
	t *testing.T
}

func newFormCluster(t *testing.T) *formCluster {
	c := &formCluster{Clientset: fake.NewClientset(), giver: &giver{}, t: t}
	c.restart()
	return c
}

// restart is another agent of the node.
func (c *formCluster) restart() {
	c.forms = newForms("n1", c.Clientset, c.giver, slog.New(slog.DiscardHandler))
}

// publish writes what the agent says, as its driver does a little later.
func (c *formCluster) publish() {
	c.t.Helper()
	now, _ := c.get()
	resources, err := pool.Resources("n1", localOf(shape([]pool.GPU{{UUID: formed, Memory: 1 << 30}}, now)))
	if err != nil {
		c.t.Fatal(err)
	}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: v1alpha1.Driver, NodeName: ptr.To("n1"), Devices: resources.Pools["n1"].Slices[0].Devices,
	}}
	c.put("resourceslices", slice)
}

func (c *formCluster) put(resource string, object runtime.Object) {
	c.t.Helper()
	which := resourcev1.SchemeGroupVersion.WithResource(resource)
	namespace := ""
	if resource == "resourceclaims" {
		namespace = "team"
	}
	err := c.Tracker().Create(which, object, namespace)
	if err != nil {
		err = c.Tracker().Update(which, object, namespace)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// claim has the node's GPU in a form, or nobody has it.
func (c *formCluster) claim(form pool.Form, admin bool) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}
	if form != "" {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Driver: v1alpha1.Driver, Pool: "n1", Device: pool.Name(formed, form), AdminAccess: ptr.To(admin)},
			{Driver: v1alpha1.Driver, Pool: "n2", Device: pool.Name(formed, form)},
		}}}
	}
	c.put("resourceclaims", claim)
}

// looks looks once and compares what is published then.
func (c *formCluster) looks(what string, want published) {
	c.t.Helper()
	given, _ := c.Given()
	pending, err := c.look(c.t.Context(), given)
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	now, _ := c.get()
	if now[formed] != want || pending != want.waits() {
		c.t.Errorf("%s: %+v, pending %t, want %+v", what, now[formed], pending, want)
	}
}

func TestGPUChangesForm(t *testing.T) {
	c := newFormCluster(t)
	c.looks("nothing is given", published{form: pool.Shared})
	c.publish()
	c.claim(pool.Shared, false)
	c.has(v1alpha1.BackendSlice)
	c.given = v1alpha1.BackendMPS
	c.looks("a share lives", published{form: pool.Shared, next: pool.MPS})
	c.tenancies = nil
	c.looks("its claim is still allocated", published{form: pool.Shared, next: pool.MPS})
	c.claim("", false)
	c.looks("nobody has it, and it is published", published{form: pool.Shared, next: pool.MPS, withdrawn: true})
	c.claim(pool.Shared, false)
	c.publish()
	c.looks("a scheduler had not seen that it is withdrawn", published{form: pool.Shared, next: pool.MPS, withdrawn: true})
	c.claim("", false)
	c.looks("nobody has it", published{form: pool.MPS})
	c.publish()
	c.claim(pool.MPS, false)
	c.looks("somebody has it in its new form", published{form: pool.MPS})
	c.given = ""
	c.looks("nothing is given any more", published{form: pool.MPS, next: pool.Shared})
	c.given = v1alpha1.BackendMPS
	c.looks("it is given the form again", published{form: pool.MPS})
}

// A GPU goes to virtual machines when no claim has a share of it, and comes back when none has its function.
func TestGPUGoesToVirtualMachines(t *testing.T) {
	const function = "vf-0000-c1-00-4"
	c := newFormCluster(t)
	c.functionOf = func(id pool.FunctionID) string { return map[string]string{function: formed}[id.Name()] }
	c.looks("nothing is given", published{form: pool.Shared})
	c.publish()
	c.claim(pool.Shared, false)
	c.given = v1alpha1.BackendVF
	c.looks("a claim has a share", published{form: pool.Shared, next: pool.VF})
	c.claim("", false)
	c.looks("nobody has one", published{form: pool.Shared, next: pool.VF, withdrawn: true})
	c.publish()
	c.looks("its device is gone", published{form: pool.VF})
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: v1alpha1.Driver, NodeName: ptr.To("n1"), Devices: []resourcev1.Device{{Name: function}},
	}}
	c.put("resourceslices", slice)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Driver: v1alpha1.Driver, Pool: "n1", Device: function},
	}}}
	c.put("resourceclaims", claim)
	c.given = ""
	c.restart()
	c.functionOf = func(id pool.FunctionID) string { return map[string]string{function: formed}[id.Name()] }
	c.looks("another agent, and a virtual machine has it", published{form: pool.VF, next: pool.Shared})
	c.claim("", false)
	c.looks("no virtual machine has it", published{form: pool.VF, next: pool.Shared, withdrawn: true})
	c.publish()
	c.looks("its function is gone", published{form: pool.Shared})
}

// The administrator may allow fewer shares than the form.
func TestReplicasArePublished(t *testing.T) {
	c := newFormCluster(t)
	given := map[string]agentconfig.Form{formed: {Backend: v1alpha1.BackendSlice, Replicas: 4}}
	if _, err := c.look(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	now, _ := c.get()
	if got := shape([]pool.GPU{{UUID: formed}}, now); len(got) != 1 || got[0].Replicas != 4 {
		t.Errorf("%+v", got)
	}
}

// An agent that starts goes on where the one before ended, whatever it is told to do then.
func TestFormsOutliveTheAgent(t *testing.T) {
	c := newFormCluster(t)
	c.looks("nothing is given", published{form: pool.Shared})
	c.publish()
	c.claim(pool.Shared, false)
	c.given = v1alpha1.BackendTimeslice
	c.restart()
	c.looks("a claim has it in the form before", published{form: pool.Shared, next: pool.Timeslice})
	// The kubelet removes the slices of a driver that was away.
	c.put("resourceslices", &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: resourcev1.ResourceSliceSpec{Driver: v1alpha1.Driver, NodeName: ptr.To("n1")}})
	c.restart()
	c.looks("nothing says how it was published", published{form: pool.Shared, next: pool.Timeslice, withdrawn: true})
	c.has(v1alpha1.BackendMPS)
	c.restart()
	c.looks("the ledger says it", published{form: pool.MPS, next: pool.Timeslice})
	c.tenancies = nil
	c.claim("", false)
	c.restart()
	c.looks("nobody has it", published{form: pool.Timeslice})
}

// Monitors look at a GPU as long as they like.
func TestAdminAccessKeepsNoForm(t *testing.T) {
	c := newFormCluster(t)
	c.looks("nothing is given", published{form: pool.Shared})
	c.publish()
	c.claim(pool.Shared, true)
	c.given = v1alpha1.BackendMPS
	c.looks("nobody has a share", published{form: pool.Shared, next: pool.MPS, withdrawn: true})
	c.publish()
	c.looks("it is withdrawn", published{form: pool.MPS})
}

// Claims of the whole cluster are read only while a GPU waits.
func TestClaimsAreReadSeldom(t *testing.T) {
	c := newFormCluster(t)
	lists := func() (n int) {
		for _, action := range c.Actions() {
			if action.Matches("list", "resourceclaims") {
				n++
			}
		}
		return n
	}
	c.looks("nothing is given", published{form: pool.Shared})
	c.publish()
	c.has(v1alpha1.BackendSlice)
	c.given = v1alpha1.BackendMPS
	for range 3 {
		c.looks("the ledger has a share", published{form: pool.Shared, next: pool.MPS})
	}
	if n := lists(); n != 0 {
		t.Errorf("claims were read %d times", n)
	}
}

func TestFormsWithoutAnAPIServer(t *testing.T) {
	c := newFormCluster(t)
	away := errors.New("away")
	c.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return away != nil, nil, away })
	if pending, err := c.look(t.Context(), nil); err == nil || !pending {
		t.Errorf("pending %t, %v", pending, err)
	}
	if now, _ := c.get(); now != nil {
		t.Errorf("published as %v, and nobody knows how they were before", now)
	}
	away = nil
	_, changed := c.get()
	c.looks("it is back", published{form: pool.Shared})
	select {
	case <-changed:
	default:
		t.Error("nobody is told")
	}
	before, _ := c.get()
	c.given, away = v1alpha1.BackendMPS, errors.New("away")
	if _, err := c.look(t.Context(), map[string]agentconfig.Form{formed: {Backend: c.given}}); err == nil {
		t.Error("no error")
	}
	if now, _ := c.get(); now[formed].form != before[formed].form || now[formed].withdrawn {
		t.Errorf("became %v", maps.Collect(maps.All(now)))
	}
}
