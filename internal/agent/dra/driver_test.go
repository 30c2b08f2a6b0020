package dra

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// simple is claim a with one share, used by one pod.
func simple() (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("p", map[string][]ref{"main": {{"a", ""}}})
	claim := claimWith(result("r", firstID, "4Gi", "30"))
	reserve(claim, pod)
	return claim, pod
}

// apart is claim a with a share for each of two containers.
func apart() (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("p", map[string][]ref{"left": {{"a", "q"}}, "right": {{"a", "r"}}})
	claim := claimWith(result("q", firstID, "4Gi", "30"), result("r", firstID, "2Gi", "0"))
	reserve(claim, pod)
	return claim, pod
}

// mixed is claim a with a share and a device of another driver, which one container uses both.
func mixed() (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("p", map[string][]ref{"main": {{"a", "nic"}, {"a", "r"}}})
	claim := claimWith(resourcev1.DeviceRequestAllocationResult{Request: "nic", Driver: "nic.example.com", Pool: nodeName, Device: "nic-0"}, result("r", firstID, "4Gi", "30"))
	reserve(claim, pod)
	return claim, pod
}

func TestPrepareAndUnprepare(t *testing.T) {
	for name, made := range map[string]func() (*resourcev1.ResourceClaim, *corev1.Pod){"simple": simple, "apart": apart, "mixed": mixed} {
		t.Run(name, func(t *testing.T) {
			claim, pod := made()
			m := newMachine(t, claim, pod)
			r := m.start()
			devices := m.mustPrepare(r, claim)
			if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) {
				t.Errorf("prepared twice: %+v, then %+v", devices, again)
			}
			if want := []string{"divvy.dev-" + string(uidA)}; !slices.Equal(m.specs(), want) {
				t.Errorf("specifications %v", m.specs())
			}
			want := uint64(4 * gib)
			if name == "apart" {
				want = 6 * gib
			}
			if first, other := m.held(r); first != want || other != 0 {
				t.Errorf("%d and %d bytes are held", first, other)
			}
			for range 2 {
				if err := m.unprepare(r, claim); err != nil {
					t.Error(err)
				}
			}
			m.mustBeEmpty(r)
		})
	}
}

func TestContainersOfOneClaim(t *testing.T) {
	claim, pod := apart()
	m := newMachine(t, claim, pod)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	if len(devices) != 2 || devices[0].CDIDeviceIDs[0] == devices[1].CDIDeviceIDs[0] {
		t.Errorf("devices %+v", devices)
	}
	spec, err := os.ReadFile(filepath.Join(m.cdiDir, "divvy.dev-"+string(uidA)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range devices {
		_, name, _ := strings.Cut(device.CDIDeviceIDs[0], "=")
		if !strings.Contains(string(spec), `"name": "`+name+`"`) {
			t.Errorf("%s is not in %s", name, spec)
		}
	}
	l, err := r.agent.Listing(t.Context())
	if err != nil || len(l.Tenants) != 2 || !slices.Equal(l.Tenants[0].Pods, []string{"p"}) {
		t.Errorf("%+v, %v", l.Tenants, err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	claimB := claimWith(result("r", otherID, "1Gi", "0"))
	claimB.Name, claimB.UID = "b", uidB
	for name, c := range map[string]struct {
		results []resourcev1.DeviceRequestAllocationResult
		pod     *corev1.Pod
		arrange func(*machine)
		fault   string
	}{
		"more than the GPU has":  {results: []resourcev1.DeviceRequestAllocationResult{result("r", firstID, "17Gi", "0")}, fault: "more than GPU 0 has for tenants"},
		"less than it can use":   {results: []resourcev1.DeviceRequestAllocationResult{result("r", firstID, "1Mi", "0")}, fault: "leaves nothing to allocate"},
		"a GPU that vanished":    {results: []resourcev1.DeviceRequestAllocationResult{wholeResult("r", "GPU-00000000-0000-4000-8000-00000000dead")}, fault: "is not on this machine"},
		"two claims":             {pod: podOf("p", map[string][]ref{"main": {{"a", ""}, {"b", ""}}}), fault: "put both requests in one claim"},
		"an old runtime":         {arrange: func(m *machine) { m.runtime("containerd://1.7.20") }, fault: "containerd 1.7.20 would silently start containers without their shares"},
		"a docker":               {arrange: func(m *machine) { m.runtime("docker://27.0") }, fault: "is not known to apply the CDI devices"},
		"a damaged installation": {arrange: func(m *machine) { m.backend.fail = errors.New("no library here\nand no driver") }, fault: "no library here; and no driver"},
		"a pod that cannot be read": {arrange: func(m *machine) {
			m.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("apiserver is away")
			})
		}, fault: "read pod p: apiserver is away"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.results == nil {
				c.results = []resourcev1.DeviceRequestAllocationResult{result("r", firstID, "4Gi", "0")}
			}
			if c.pod == nil {
				c.pod = podOf("p", map[string][]ref{"main": {{"a", ""}}})
			}
			claim := claimWith(c.results...)
			reserve(claim, c.pod)
			m := newMachine(t, claim, claimB, c.pod)
			if c.arrange != nil {
				c.arrange(m)
			}
			r := m.start()
			result := m.prepare(r, claim)
			if result.Err == nil || !strings.Contains(result.Err.Error(), c.fault) || strings.Contains(result.Err.Error(), "\n") {
				t.Fatalf("%v, want %q", result.Err, c.fault)
			}
			m.backend.fail = nil
			m.mustBeEmpty(r)
			if text := <-m.events.Events; !strings.Contains(text, "Warning PrepareFailed") || !strings.Contains(text, c.fault) {
				t.Errorf("event %q", text)
			}
			if err := m.unprepare(r, claim); err != nil {
				t.Error(err)
			}
		})
	}
}

func (m *machine) runtime(version string) {
	m.t.Helper()
	node, err := m.client.CoreV1().Nodes().Get(m.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	node.Status.NodeInfo.ContainerRuntimeVersion = version
	if _, err := m.client.CoreV1().Nodes().UpdateStatus(m.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

// A runtime that was mended is seen at the next try.
func TestRuntimeIsAskedAgain(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	m.runtime("containerd://1.6.20")
	r := m.start()
	if m.prepare(r, claim).Err == nil {
		t.Fatal("prepared")
	}
	m.runtime("containerd://2.0.0")
	m.mustPrepare(r, claim)
}

// Refusing the second of two views leaves nothing of the first.
func TestHalfAClaimIsTakenBack(t *testing.T) {
	pod := podOf("p", map[string][]ref{"left": {{"a", "q"}}, "right": {{"a", "r"}}})
	claim := claimWith(result("q", firstID, "4Gi", "30"), result("r", firstID, "13Gi", "0"))
	reserve(claim, pod)
	m := newMachine(t, claim, pod)
	r := m.start()
	if err := m.prepare(r, claim).Err; err == nil || !strings.Contains(err.Error(), "has 12Gi of 16Gi not granted") {
		t.Errorf("%v", err)
	}
	m.mustBeEmpty(r)
}

// A specification that cannot be written leaves no share behind.
func TestUnwritableSpecification(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	if err := os.WriteFile(m.cdiDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := m.start()
	if err := m.prepare(r, claim).Err; err == nil || !strings.Contains(err.Error(), "CDI") {
		t.Errorf("%v", err)
	}
	if first, _ := m.held(r); first != 0 {
		t.Errorf("%d bytes are held", first)
	}
}

// Pods that come and go change nothing for those that run.
func TestPodsOfASharedClaimChange(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	second := podOf("second", map[string][]ref{"main": {{"a", "r"}}})
	if err := m.client.Tracker().Add(second); err != nil {
		t.Fatal(err)
	}
	claim.Status.ReservedFor = nil
	reserve(claim, podOf("gone", nil), second)
	if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) {
		t.Errorf("%+v became %+v", devices, again)
	}
	if got := r.agent.Tenancies()[0].Pods; !slices.Equal(got, []string{"second"}) {
		t.Errorf("pods %v", got)
	}
}

func TestOtherDriversClaims(t *testing.T) {
	claim, pod := simple()
	claim.Status.Allocation.Devices.Results[0].Driver = "nic.example.com"
	m := newMachine(t, claim, pod)
	m.runtime("docker://1") // not our business then
	r := m.start()
	if devices := m.mustPrepare(r, claim); len(devices) != 0 {
		t.Errorf("devices %+v", devices)
	}
	m.mustBeEmpty(r)
}

func TestUnprepareWaitsForProcesses(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	end := m.live(r, "team/a")
	if err := m.unprepare(r, claim); err == nil || !strings.Contains(err.Error(), "still in use") {
		t.Errorf("%v", err)
	}
	if len(m.specs()) != 1 {
		t.Error("the specification is gone")
	}
	end()
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

func TestPrivilegedContainers(t *testing.T) {
	claim, pod := simple()
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	m := newMachine(t, claim, pod)
	r := m.start()
	if err := m.prepare(r, claim).Err; err == nil || !strings.Contains(err.Error(), "privileged") {
		t.Errorf("%v", err)
	}
	m.mustBeEmpty(r)
}

// The tenant of a claim of one request is made while the pods are read.
func TestTenantsAreMadeMeanwhile(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	made := make(chan struct{})
	m.step = func(name string) {
		if name == "prepare-made" {
			close(made)
		}
	}
	r := m.start()
	if err := r.runtime.check(t.Context()); err != nil { // the client answers one question at a time
		t.Fatal(err)
	}
	m.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case <-made:
		case <-time.After(5 * time.Minute):
			t.Error("nothing is made while a pod is read")
		}
		return false, nil, nil
	})
	m.mustPrepare(r, claim)
	if first, _ := m.held(r); first != 4*gib || len(m.specs()) != 1 {
		t.Errorf("%d bytes are held, specifications %v", first, m.specs())
	}
}

// What the API server has at hand of a pod will do, unless it is from before the pod had the claim.
func TestPodsAtHand(t *testing.T) {
	claim, pod := simple()
	pod.Spec.ResourceClaims[0].ResourceClaimName = nil
	pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("template")
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: pod.Spec.ResourceClaims[0].Name, ResourceClaimName: ptr.To(claim.Name)}}
	early, former := pod.DeepCopy(), pod.DeepCopy()
	early.Status.ResourceClaimStatuses = nil
	former.UID = "former"
	missing := apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	for name, c := range map[string]struct {
		atHand *corev1.Pod
		err    error
		asked  []string
		fault  string
	}{
		"the same":           {atHand: pod, asked: []string{atHand}},
		"without its claims": {atHand: early, asked: []string{atHand, newest}},
		"one before":         {atHand: former, asked: []string{atHand, newest}},
		"none yet":           {err: missing, asked: []string{atHand, newest}},
		"no answer":          {err: errors.New("away"), asked: []string{atHand}, fault: "read pod p: away"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, claim, pod)
			var asked []string
			m.client.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				version := action.(clienttesting.GetActionImpl).GetOptions.ResourceVersion
				asked = append(asked, version)
				return version == atHand, c.atHand, c.err
			})
			err := m.prepare(m.start(), claim).Err
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || err.Error() != c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
			if !slices.Equal(asked, c.asked) {
				t.Errorf("asked for versions %q", asked)
			}
		})
	}
}
