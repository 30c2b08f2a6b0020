package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

// chooser is a node whose label a test sets; an error is answered in its stead.
type chooser struct {
	mu    sync.Mutex
	label string
	err   error
}

func (l *chooser) set(label string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.label, l.err = label, err
}

func (l *chooser) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	node := &corev1.Node{}
	if l.label != "" {
		node.Labels = map[string]string{policyLabel: l.label}
	}
	return node, nil
}

func sliced(n int, more string) *fstest.MapFile {
	return &fstest.MapFile{Data: fmt.Appendf(nil, "version: v1\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: %d%s}]}}", n, more)}
}

// brief writes units as "resource id, …".
func brief(units []deviceplugin.Unit) string {
	var all []string
	for _, o := range units {
		text := strings.TrimPrefix(o.Resource, "nvidia.com/") + " " + o.ID()
		if o.Faulty {
			text += " faulty"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func testPolicy(node *chooser, files fs.FS) *policy {
	return newPolicy(files, node, "n1", []pluginfile.GPU{{Index: 0, UUID: "A"}, {Index: 1, UUID: "B"}}, slog.New(slog.DiscardHandler))
}

func TestChosen(t *testing.T) {
	refused := &fstest.MapFile{Data: []byte("flags: {gdsEnabled: true}")}
	both := fstest.MapFS{"default": sliced(2, ""), "other": sliced(3, ""), "bad": refused, "..data": sliced(9, "")}
	for _, c := range []struct {
		files fstest.MapFS
		label string
		want  string // the name, or what the error says
	}{
		{both, "", "default"},
		{both, "other", "other"},
		{fstest.MapFS{"only": sliced(2, "")}, "", "only"},
		{both, "third", "no configuration named third, as the node's label nvidia.com/device-plugin.config says; there are: bad, default, other"},
		{fstest.MapFS{"a": sliced(2, ""), "b": sliced(2, "")}, "", "none is named default; there are: a, b"},
		{both, "..data", "no configuration named ..data"},
		{both, "../etc", "no configuration named ../etc"},
		{both, "bad", "bad:1: flags.gdsEnabled: refused: "},
	} {
		name, _, err := chosen(c.files, c.label)
		if err == nil && name != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("label %q gives %q, %v, not %s", c.label, name, err, c.want)
		}
	}
}

// A GPU that is used keeps how it is divided until it is free, and takes nothing new meanwhile.
func TestPolicyFollowsTheLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &chooser{}
		files := fstest.MapFS{"default": sliced(2, ""), "first": sliced(3, ", devices: [0]")}
		p := testPolicy(node, files)
		var used atomic.Bool
		p.used = func() map[string]bool { return map[string]bool{"A": used.Load()} }
		told := make(chan string, 10)
		p.told = func(reason, text string) { told <- reason + ": " + text }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.run(ctx) }()
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got, _ := p.units(nil); brief(got) != want {
				t.Errorf("%s: %s, not %s", when, brief(got), want)
			}
		}
		const halves = "gpu.shared A::0, gpu.shared A::1, gpu.shared B::0, gpu.shared B::1"
		expect("at first", halves)

		p.gave([]v1alpha1.Replica{{UUID: "A"}})
		node.set("first", nil)
		time.Sleep(labelInterval)
		expect("just given", "gpu.shared A::0 faulty, gpu.shared A::1 faulty, gpu B")
		used.Store(true)
		time.Sleep(2 * givenTime)
		expect("used", "gpu.shared A::0 faulty, gpu.shared A::1 faulty, gpu B")
		used.Store(false)
		time.Sleep(2 * freeInterval)
		expect("free", "gpu.shared A::0, gpu.shared A::1, gpu.shared A::2, gpu B")

		node.set("nowhere", nil)
		time.Sleep(3 * labelInterval)
		expect("an unknown name", "gpu.shared A::0, gpu.shared A::1, gpu.shared A::2, gpu B")
		if got := <-told; !strings.HasPrefix(got, "UnknownDevicePluginConfig: no configuration named nowhere") || !strings.HasSuffix(got, "; configuration first stays in force") {
			t.Errorf("the event is %q", got)
		}
		node.set("", errors.New("the API server is away"))
		time.Sleep(labelInterval)
		expect("no answer", "gpu.shared A::0, gpu.shared A::1, gpu.shared A::2, gpu B")
		if len(told) > 0 {
			t.Errorf("there is another event: %q", <-told)
		}
		node.set("", nil)
		time.Sleep(labelInterval)
		expect("the label is gone", halves)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestUnitsOfFaultyGPUs(t *testing.T) {
	p := testPolicy(&chooser{}, fstest.MapFS{"c": {Data: []byte("sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: [1]}]}}")}})
	if got, _ := p.units(nil); len(got) > 0 {
		t.Errorf("before a configuration is read there are %s", brief(got))
	}
	p.follow(t.Context())
	p.divide()
	got, _ := p.units(map[string]health.Fault{"A": {Reason: "xid-79"}})
	if want := "gpu A faulty, gpu B::0, gpu B::1"; brief(got) != want {
		t.Errorf("%s, not %s", brief(got), want)
	}
	if !got[1].Single || got[1].Backend != v1alpha1.BackendMPS || got[0].Backend != "" || p.packed() {
		t.Errorf("%+v", got)
	}
}
