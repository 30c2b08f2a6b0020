package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// pages is a backend that makes tenants of pages alone, for two GPUs, or count where that is more.
type pages struct {
	*tenantdir.Tenants
	dir   string
	fail  error
	count int
}

func newPages(dir string) *pages {
	return &pages{dir: dir, Tenants: tenantdir.NewTenants(tenantdir.Config{
		Root: dir, PIDNamespace: 1, Reap: reapNobody, Log: slog.New(slog.DiscardHandler),
	})}
}

func (b *pages) Discover(context.Context) ([]backend.GPU, error) {
	var all []backend.GPU
	for i := range max(b.count, 2) {
		all = append(all, backend.GPU{Index: i, UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i+1), Name: "A", Total: 16 * gib, ContextBytes: gib / 2})
	}
	return all, nil
}

func (b *pages) Plan(t backend.Tenant) (*backend.Plan, error) {
	dir := b.Dir(t)
	return &backend.Plan{
		Dir: string(dir), Steps: []backend.Step{pageStep{b, dir, t}},
		Edits: edits.Edits{Mounts: []edits.Mount{{Source: string(dir), Target: edits.ShareDir, Options: edits.ReadOnly}}},
	}, nil
}

func (b *pages) Apply(ctx context.Context, p *backend.Plan) error { return p.Apply(ctx) }
func (b *pages) Health(context.Context) error                     { return nil }
func (b *pages) Undo(_ context.Context, t backend.Tenant) error   { return tenantdir.Dir(t.Dir).Remove() }

type pageStep struct {
	backend *pages
	dir     tenantdir.Dir
	tenant  backend.Tenant
}

func (s pageStep) Apply() error {
	if s.backend.fail != nil {
		return s.backend.fail
	}
	c, err := tenantdir.Encode(s.tenant, 1)
	if err != nil {
		return err
	}
	return s.dir.Make(&c, s.tenant.Record, tenantdir.AccessOwner, -1)
}

func (s pageStep) Undo() error { return s.dir.Remove() }

// Open implements [backend.Opener].
func (b *pages) Open(gpus []backend.GPU) (edits.Edits, error) {
	var e edits.Edits
	for _, gpu := range gpus {
		e.Env = append(e.Env, edits.Env{Name: fmt.Sprintf("OPEN%d", gpu.Index), Value: gpu.UUID})
	}
	return e, b.fail
}

// quiet is a driver of idle GPUs.
type quiet struct{}

func (quiet) Version() nvml.Version              { return nvml.Version{} }
func (quiet) Holdings(gpus []int) []nvml.Holding { return make([]nvml.Holding, len(gpus)) }
func (quiet) Activities(gpus []int, _ []time.Time) []nvml.Activity {
	all := make([]nvml.Activity, len(gpus))
	for i := range all {
		all[i].Err = nvml.ErrNotSupported
	}
	return all
}

func (quiet) Utilisations(gpus []int, _ []time.Time) []nvml.Load {
	all := make([]nvml.Load, len(gpus))
	for i := range all {
		all[i].Err = nvml.ErrNotSupported
	}
	return all
}

func reapNobody(context.Context, tenantdir.Dir, int) error { return nil }

// machine is a node on which agents come and go, in a cluster that stays.
type machine struct {
	t       *testing.T
	dir     string
	cdiDir  string
	backend *pages
	client  *fake.Clientset
	events  *events.FakeRecorder
	step    func(string) // of the agents to come
	// machines gives them devices for virtual machines, nil where they offer none.
	machines Machines
	cards    Cards // of the agents to come
	remotes  Remotes
	// gives has the agents to come give devices to virtual machines, by the ledger of the node; reserver is the one of the
	// latest agent.
	gives    claims.Maker
	reserver Reserver
	// writing makes a patch of a claim one step, as it is at an API server: the fake one reads and writes.
	writing sync.Mutex
	atomic  sync.Once
}

func newMachine(t *testing.T, objects ...runtime.Object) *machine {
	t.Helper()
	dir := t.TempDir()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}}
	node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.3.7"
	return &machine{
		t: t, dir: dir, cdiDir: filepath.Join(dir, "cdi"), backend: newPages(filepath.Join(dir, "tenants")),
		client: fake.NewClientset(append(objects, node)...), events: events.NewFakeRecorder(100),
	}
}

// running is one agent of the machine, with the driver that serves it.
type running struct {
	*driver
	agent *agent.Agent
	stop  func()
}

func (m *machine) start() *running {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	step := m.step
	if step == nil {
		step = func(string) {}
	}
	a, err := agent.New(ctx, agent.Config{
		Backends: agenttest.Backends(m.backend), Driver: quiet{}, Checkpoint: filepath.Join(m.dir, "tenants.json"),
		Log: slog.New(slog.DiscardHandler), Interval: time.Hour, Now: time.Now, Step: step,
	})
	if err != nil {
		cancel()
		m.t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { a.Run(ctx) })
	openings, err := newRecords[opened](filepath.Join(m.dir, "admin-access.json"), "admin-access")
	if err != nil {
		m.t.Error(err)
	}
	handed, err := newRecords[handed](filepath.Join(m.dir, "machine-claims.json"), "machine-claims")
	if err != nil {
		m.t.Error(err)
	}
	attached, err := newRecords[attached](filepath.Join(m.dir, "nics.json"), "nics")
	if err != nil {
		m.t.Error(err)
	}
	remote, err := newRecords[remoteClaim](filepath.Join(m.dir, "remote-claims.json"), "remote-claims")
	if err != nil {
		m.t.Error(err)
	}
	if m.reserver = (unreserved{}); m.gives != nil {
		m.reserver = m.ledger()
	}
	r := &running{agent: a, driver: &driver{
		opener: a, openings: openings, machines: m.machines, handed: handed, handlers: handlers{client: m.client},
		remotes: m.remotes, remote: remote,
		cards: m.cards, attached: attached, reserver: m.reserver,
		node: nodeName, client: m.client, tenants: a, cdiDir: m.cdiDir, log: slog.New(slog.DiscardHandler), step: step,
		teller: &teller{recorder: m.events}, meter: unmetered{}, runtime: &runtimeGate{client: m.client, node: nodeName}, broken: func(error) {}, pods: noPods{},
	}}
	r.stop = func() { cancel(); done.Wait() }
	m.t.Cleanup(r.stop)
	return r
}

// prepare is what the kubelet asks for.
func (m *machine) prepare(r *running, claim *resourcev1.ResourceClaim) kubeletplugin.PrepareResult {
	m.t.Helper()
	results, err := r.PrepareResourceClaims(m.t.Context(), []*resourcev1.ResourceClaim{claim})
	if err != nil || len(results) != 1 {
		m.t.Fatalf("%v, %v", results, err)
	}
	return results[claim.UID]
}

func (m *machine) mustPrepare(r *running, claim *resourcev1.ResourceClaim) []kubeletplugin.Device {
	m.t.Helper()
	result := m.prepare(r, claim)
	if result.Err != nil {
		m.t.Fatal(result.Err)
	}
	return result.Devices
}

func (m *machine) unprepare(r *running, claim *resourcev1.ResourceClaim) error {
	m.t.Helper()
	object := kubeletplugin.NamespacedObject{UID: claim.UID, NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}}
	results, err := r.UnprepareResourceClaims(m.t.Context(), []kubeletplugin.NamespacedObject{object})
	if err != nil || len(results) != 1 {
		m.t.Fatalf("%v, %v", results, err)
	}
	return results[claim.UID]
}

// specs are the names of the CDI specifications that are there.
func (m *machine) specs() []string {
	m.t.Helper()
	names, err := cdi.List(m.cdiDir, "")
	if err != nil {
		m.t.Fatal(err)
	}
	return names
}

// held is what the ledger has of each GPU, in bytes.
func (m *machine) held(r *running) (first, other uint64) {
	m.t.Helper()
	l, err := r.agent.Listing(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return l.GPUs[0].Granted, l.GPUs[1].Granted
}

func (m *machine) mustBeEmpty(r *running) {
	m.t.Helper()
	if first, other := m.held(r); first+other != 0 || len(r.agent.Tenancies()) != 0 {
		m.t.Errorf("the ledger has %d and %d bytes of %v", first, other, r.agent.Tenancies())
	}
	if specs := m.specs(); len(specs) != 0 {
		m.t.Errorf("specifications %v are left", specs)
	}
	if dirs, err := os.ReadDir(tenantdir.Containers(m.backend.dir)); err != nil && !errors.Is(err, os.ErrNotExist) || len(dirs) != 0 {
		m.t.Errorf("directories %v are left, %v", dirs, err)
	}
}

// live makes a process that uses a tenant, until the function it returns is called.
func (m *machine) live(r *running, name string) (end func()) {
	m.t.Helper()
	l, err := r.agent.Listing(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, t := range l.Tenants {
		if t.Name != name {
			continue
		}
		file, err := os.OpenFile(tenantdir.Dir(t.Dir).State(), os.O_RDWR, 0)
		if err != nil {
			m.t.Fatal(err)
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: page.LockBase, Len: 1}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() { file.Close() })
		return func() { file.Close() }
	}
	m.t.Fatalf("there is no tenant %s", name)
	return nil
}

// noPods knows nothing of the node's pods.
type noPods struct{}

func (noPods) known() bool                        { return false }
func (noPods) users(string, string) []*corev1.Pod { return nil }
func (noPods) named(string, string) *corev1.Pod   { return nil }
func (noPods) lives(types.UID) bool               { return false }
func (noPods) all() []*corev1.Pod                 { return nil }

// watched lets the agent watch its node's pods.
func (m *machine) watched(r *running) *podWatch {
	m.t.Helper()
	watch, err := watchPods(m.client, nodeName)
	if err != nil {
		m.t.Fatal(err)
	}
	// Of what is deleted between the list and the watch the fake client never tells.
	stands := make(chan struct{})
	once := sync.OnceFunc(func() { close(stands) })
	m.client.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, apiwatch.Interface, error) {
		defer once()
		asked, _ := a.(clienttesting.WatchActionImpl)
		begun, err := m.client.Tracker().Watch(a.GetResource(), a.GetNamespace(), asked.ListOptions)
		return true, begun, err
	})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { watch.run(ctx) })
	m.t.Cleanup(func() { cancel(); done.Wait() })
	<-watch.ended
	<-stands
	if !watch.known() {
		m.t.Fatal("the pods are not known")
	}
	r.pods = watch
	return watch
}

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// removePod deletes a pod and waits until the watch has told of it.
func (m *machine) removePod(w *podWatch, pod *corev1.Pod) {
	m.t.Helper()
	if err := m.client.Tracker().Delete(podResource, pod.Namespace, pod.Name); err != nil {
		m.t.Fatal(err)
	}
	<-w.ended
}

// addPod adds a pod and waits until the watch knows it.
func (m *machine) addPod(w *podWatch, pod *corev1.Pod) {
	m.t.Helper()
	if err := m.client.Tracker().Add(pod); err != nil {
		m.t.Fatal(err)
	}
	for !w.lives(pod.UID) {
		time.Sleep(time.Millisecond)
	}
}
