package agent

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/process"
)

// devices are those of a machine, which outlive agents.
type devices struct {
	mu    sync.Mutex
	there map[string]string // the directory by name
	fail  error             // of Write
}

func (d *devices) Check(name string) error {
	if strings.HasSuffix(name, "-") {
		return errors.New("no device can be called that")
	}
	return nil
}

func (d *devices) Write(name string, e edits.Edits) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail == nil {
		d.there[name] = e.Env[0].Value
	}
	return d.fail
}

func (d *devices) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.there, name)
	return nil
}

func (d *devices) Sweep() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.there, func(_, dir string) bool { _, err := os.Stat(dir); return err != nil })
	return nil
}

func (d *devices) has(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.there[name] != ""
}

func newDevices() *devices { return &devices{there: map[string]string{}} }

// contained is a backend that knows which processes are in containers, as long as the share's directory is there.
type contained struct {
	*pages
	mu   sync.Mutex
	pids []int
}

func (b *contained) Has(t backend.Tenant, pid int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := os.Stat(t.Dir)
	return err == nil && slices.Contains(b.pids, pid)
}

// serving is a system agent.
func (n *node) serving(d *devices, b backend.Backend) *running {
	n.t.Helper()
	c := n.settings(b)
	c.Devices = d
	return n.startAs(c)
}

func lasting(name string, memory uint64) control.CreateParams {
	return control.CreateParams{
		Request: v1alpha1.ShareRequest{Name: name, Memory: v1alpha1.Bytes(memory), GPUs: 1, Among: []string{"0"}}, Layer: control.LayerContainer,
		Ticket: "a secret of " + name + ", long enough",
	}
}

// A lasting share stays without its asker, survives agents with its device, and ends when it is stopped.
func TestLastingShare(t *testing.T) {
	n, d := newNode(t), newDevices()
	r := n.serving(d, n.backend)
	a := n.asker(0)
	created := n.grant(r, a, lasting("train", 4*gib))
	a.kill()
	a.hangUp()
	if created.Tenant.Device != "divvy.dev/share=train" || created.Tenant.Layer != control.LayerContainer || !created.Tenant.Held {
		t.Errorf("granted %+v", created.Tenant)
	}
	for range 2 {
		if l := n.list(r); len(l.Tenants) != 1 || l.Tenants[0].Device != "divvy.dev/share=train" || l.GPUs[0].Granted != 4*gib || !d.has("train") {
			t.Fatalf("listed %+v", l.Tenants)
		}
		r.stopAgent()
		d.there = map[string]string{"left": n.dir + "/gone"} // somebody removed the device, and another share's was left
		r = n.serving(d, n.backend)
		if d.has("left") || !d.has("train") {
			t.Errorf("after a restart the devices are %v", d.there)
		}
	}
	if _, err := r.stop(t.Context(), root, control.StopParams{Tenant: "train", Lasting: true}); err != nil {
		t.Fatal(err)
	}
	if !n.gone(r, created)() || d.has("train") {
		t.Errorf("after its end: %v, devices %v", n.list(r).Tenants, d.there)
	}
	if !slices.ContainsFunc(n.list(r).Events, func(e control.Event) bool {
		return e.Kind == control.EventEnded && strings.HasSuffix(e.Text, " stopped it (divvy share rm)")
	}) {
		t.Errorf("its end is told as %+v", n.list(r).Events)
	}
}

// What is in the record is found again without the checkpoint.
func TestLastingShareWithoutCheckpoint(t *testing.T) {
	for name, file := range map[string]string{"checkpoint": "", "checkpoint and record": "record"} {
		t.Run(name, func(t *testing.T) {
			n, d := newNode(t), newDevices()
			r := n.serving(d, n.backend)
			created := n.grant(r, n.asker(0), lasting("train", 4*gib))
			r.stopAgent()
			if err := os.Remove(n.settings(n.backend).Checkpoint); err != nil {
				t.Fatal(err)
			}
			if file != "" {
				if err := os.Remove(created.Tenant.Dir + "/" + file); err != nil {
					t.Fatal(err)
				}
			}
			r = n.serving(d, n.backend)
			l := n.list(r)
			if len(l.Tenants) != 1 || l.Tenants[0].Device != "divvy.dev/share=train" || l.GPUs[0].Granted != 4*gib || !d.has("train") {
				t.Errorf("found %+v", l.Tenants)
			}
			if _, err := r.stop(t.Context(), root, control.StopParams{Tenant: "train"}); err != nil || d.has("train") {
				t.Errorf("stop: %v, devices %v", err, d.there)
			}
		})
	}
}

func TestLastingShareRefused(t *testing.T) {
	n, d := newNode(t), newDevices()
	r := n.serving(d, n.backend)
	n.grant(r, n.asker(0), lasting("train", 4*gib))
	other, mps, profile, mine := lasting("train", gib), lasting("mps", gib), lasting("mig", gib), ask(gib)
	other.For, other.Ticket = new(ada), ""
	mps.Request.Backend = v1alpha1.BackendMPS
	profile.Request.Profile, profile.Request.Backend = "1g.10gb", v1alpha1.BackendSlice
	mine.For = new(ada)
	for name, test := range map[string]struct {
		uid  int
		p    control.CreateParams
		want string
	}{
		"another user":    {ada, lasting("a", gib), "only root makes shares for containers"},
		"no name":         {0, lasting("", gib), "has no name: give one"},
		"no device":       {0, lasting("a-", gib), "no device can be called that"},
		"a taken name":    {0, other, "`divvy share rm train`"},
		"another backend": {0, mps, ""},
		"an instance":     {0, profile, ""},
		"too much":        {0, lasting("b", 79*gib), "root/train holds 4Gi"},
		"run for another": {0, mine, "is one for containers"},
	} {
		t.Run(name, func(t *testing.T) {
			if text, _ := n.refusal(r, test.uid, test.p); text == "" || !strings.Contains(text, test.want) || strings.Contains(text, "\n") {
				t.Errorf("refused with %q, want %q in it", text, test.want)
			}
		})
	}
	if text := lastingBackend(mps); text == nil || !strings.Contains(text.Error(), "backend mps") {
		t.Errorf("backend mps: %v", text)
	}
	own := n.ruled("overcommit: {users: [eve]}") // with no place for devices
	if text, _ := n.refusal(own, 0, lasting("own", gib)); !strings.Contains(text, "the system agent, which outlives them") {
		t.Errorf("an agent without devices: %q", text)
	}
	if len(d.there) != 1 {
		t.Errorf("the devices are %v", d.there)
	}
}

// Whose a share is, their limits count, and they may end it.
func TestLastingShareForAUser(t *testing.T) {
	n, d := newNode(t), newDevices()
	c := n.settings(n.backend)
	c.Devices, c.Rules = d, n.rules("users: {ada: {memory: 10Gi}}")
	r := n.startAs(c)
	p := lasting("serve", 8*gib)
	p.For = new(ada)
	created := n.grant(r, n.asker(0), p)
	if created.Tenant.UID != ada {
		t.Errorf("it is user %d's", created.Tenant.UID)
	}
	more := lasting("more", 4*gib)
	more.For = new(ada)
	if text, _ := n.refusal(r, 0, more); !strings.Contains(text, "the administrator lets you have at most 10Gi") {
		t.Errorf("beyond her limit: %q", text)
	}
	for _, test := range []struct {
		uid  int
		code control.Code
	}{{bob, control.CodeDenied}, {ada, ""}} {
		_, err := r.stop(t.Context(), control.NewPeer(process.ID{}, test.uid, nil, nil), control.StopParams{Tenant: created.Tenant.ID, Lasting: true})
		if test.code == "" && err != nil || test.code != "" && control.CodeOf(err) != test.code {
			t.Errorf("stopped by %d: %v", test.uid, err)
		}
	}
	run := n.grant(r, n.asker(os.Getuid()), ask(gib))
	if _, err := r.stop(t.Context(), root, control.StopParams{Tenant: run.Tenant.ID, Lasting: true}); control.CodeOf(err) != control.CodeInvalid {
		t.Errorf("a share of `divvy run`: %v", err)
	}
}

// A share that is ended takes the processes of its containers with it, also those that ignore SIGTERM and use no GPU, and
// nothing else of its user's. No container gets it meanwhile.
func TestStopOfALastingShare(t *testing.T) {
	n, d := newNode(t), newDevices()
	b := &contained{pages: n.backend}
	r := n.serving(d, b)
	created := n.grant(r, n.asker(0), lasting("train", 4*gib))
	inside, outside := n.askerOf(os.Getuid(), exec.Command("sh", "-c", `trap "d" TERM; while :; do sleep 0.01; done`)), n.asker(os.Getuid())
	id, err := process.Find(inside.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.pids = append(b.pids, id.PID)
	b.mu.Unlock()
	if _, err := r.stop(t.Context(), root, control.StopParams{Tenant: "train", Grace: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if id.Alive() {
		t.Error("the container's process is left")
	}
	if other, err := process.Find(outside.cmd.Process.Pid); err != nil || !other.Alive() {
		t.Error("a process of root's that is in no container was ended")
	}
	if !n.gone(r, created)() || d.has("train") {
		t.Errorf("after its end: %v, devices %v", n.list(r).Tenants, d.there)
	}
}

// An agent that dies while it makes a share, or cannot write its device, leaves nothing behind that is not complete: who
// asks again gets one share.
func TestLastingShareAfterACrash(t *testing.T) {
	for _, step := range []string{"create-admitted", "create-saved", "create-made", "create-kept"} {
		t.Run(step, func(t *testing.T) {
			n, d := newNode(t), newDevices()
			n.step = func(name string) {
				if name == step {
					panic(name) //nolint:forbidigo // nothing else ends an agent at once
				}
			}
			r := n.serving(d, n.backend)
			n.step = nil
			func() {
				defer func() {
					if recover() == nil {
						t.Fatal("there is no such step")
					}
				}()
				_, _ = r.create(t.Context(), n.asker(0).peer, lasting("train", 4*gib))
			}()
			// What the agent that died had locked nobody unlocks.
			r = n.serving(d, n.backend)
			n.grant(r, n.asker(0), lasting("train", 4*gib))
			if l := n.list(r); len(l.Tenants) != 1 || l.GPUs[0].Granted != 4*gib || !d.has("train") {
				t.Errorf("%d shares, %d bytes granted, devices %v", len(l.Tenants), l.GPUs[0].Granted, d.there)
			}
		})
	}
}

func TestLastingShareWithoutItsDevice(t *testing.T) {
	n, d := newNode(t), newDevices()
	d.fail = errors.New("the disk is full")
	r := n.serving(d, n.backend)
	if text, _ := n.refusal(r, 0, lasting("train", 4*gib)); text != "the disk is full" {
		t.Errorf("refused with %q", text)
	}
	entries, _ := os.ReadDir(n.backend.dir + "/containers")
	if l := n.list(r); len(l.Tenants) != 0 || l.GPUs[0].Granted != 0 || len(entries) != 0 {
		t.Errorf("left are %v and %v", l.Tenants, entries)
	}
	d.fail = nil
	n.grant(r, n.asker(0), lasting("train", 4*gib))
}
