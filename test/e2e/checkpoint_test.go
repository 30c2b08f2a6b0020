package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// envelope is the file form of a checkpoint.
type envelope struct {
	Kind    string          `json:"kind"`
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	State   json.RawMessage `json:"state"`
}

// saved is the part of a checkpoint's state that this test needs.
type saved struct {
	Tenants []map[string]any `json:"tenants"`
}

// An agent that starts beside running tenants reads the checkpoint of every earlier
// version, and finds the tenants by their pages if it can read none.
func checkpoints(l *lab) {
	n := l.Nodes[0]
	frozen, err := filepath.Glob(filepath.Join(l.root, "internal/agent/testdata/checkpoint/v*.json"))
	l.must(err)
	if len(frozen) < 2 {
		l.t.Fatalf("there are %d frozen checkpoints", len(frozen))
	}
	host := l.hostTenant(n)
	for _, file := range frozen {
		l.replaceCheckpoint(n, func(now []byte) []byte { return l.asWritten(file, now) })
		// The daemon set's status may still count the agent that has left.
		l.eventually(filepath.Base(file)+": the agent has found the tenant again", host.lost)
	}
	host.end()
	busy := l.tenants()
	// Most have no tenants that claims made.
	older := frozen[slices.IndexFunc(frozen, func(file string) bool {
		text, err := os.ReadFile(file)
		l.must(err)
		return bytes.Contains(text, []byte(`"tenancy"`))
	})]
	l.replaceCheckpoint(n, func(now []byte) []byte { return l.asWritten(older, now) })
	l.agree()
	l.unmoved(busy...)
	l.replaceCheckpoint(n, func([]byte) []byte { return []byte("damaged") })
	l.agree()
	l.unmoved(busy...)
	l.runs(n, "after")
}

// replaceCheckpoint changes a node's checkpoint while no agent runs there, and then
// starts an agent.
func (l *lab) replaceCheckpoint(n *cluster.Machine, change func([]byte) []byte) {
	l.t.Helper()
	l.dismiss(n)
	path := n.SimgpuDir() + "/tenants.json"
	now, err := n.Exec(l.ctx, "cat", path)
	l.must(err)
	cmd := n.Command(l.ctx, "sh", "-c", "cat > "+path)
	cmd.Stdin = strings.NewReader(string(change([]byte(now))))
	_, err = n.Output(cmd)
	l.must(err)
	l.invite(n)
}

// asWritten returns the present checkpoint as an earlier version would have written
// it: with only the fields and the version of that version's frozen file.
func (l *lab) asWritten(frozen string, now []byte) []byte {
	l.t.Helper()
	text, err := os.ReadFile(frozen)
	l.must(err)
	var old, present envelope
	l.must(json.Unmarshal(text, &old))
	l.must(json.Unmarshal(now, &present))
	var had, has saved
	l.must(json.Unmarshal(old.State, &had))
	l.must(json.Unmarshal(present.State, &has))
	var all any
	for _, t := range had.Tenants {
		all = merged(all, t)
	}
	for i, t := range has.Tenants {
		kept, ok := reduced(t, all).(map[string]any)
		if !ok {
			l.t.Fatalf("%s has no tenants", frozen)
		}
		has.Tenants[i] = kept
	}
	old.State, err = json.Marshal(has)
	l.must(err)
	sum := sha256.Sum256(old.State)
	old.SHA256 = hex.EncodeToString(sum[:])
	written, err := json.Marshal(old)
	l.must(err)
	return written
}

// merged returns a value with the fields of both.
func merged(a, b any) any {
	switch b := b.(type) {
	case map[string]any:
		m, _ := a.(map[string]any)
		if m == nil {
			m = map[string]any{}
		}
		for key, value := range b {
			m[key] = merged(m[key], value)
		}
		return m
	case []any:
		var one any
		if list, _ := a.([]any); len(list) > 0 {
			one = list[0]
		}
		for _, value := range b {
			one = merged(one, value)
		}
		return []any{one}
	}
	return b
}

// reduced returns the value with only those fields that the other one has too.
func reduced(value, like any) any {
	switch value := value.(type) {
	case map[string]any:
		fields, _ := like.(map[string]any)
		for key := range value {
			if _, ok := fields[key]; !ok {
				delete(value, key)
				continue
			}
			value[key] = reduced(value[key], fields[key])
		}
		return value
	case []any:
		list, _ := like.([]any)
		for i := range value {
			if len(list) > 0 {
				value[i] = reduced(value[i], list[0])
			}
		}
		return value
	}
	return value
}

// hostTenant starts a program with a share on the node, outside of any pod.
type hostTenant struct {
	*lab
	n     *cluster.Machine
	ended chan error
	stop  func()
}

func (l *lab) hostTenant(n *cluster.Machine) *hostTenant {
	l.t.Helper()
	h := &hostTenant{lab: l, n: n, ended: make(chan error, 1)}
	cmd := n.Command(l.ctx, "divvy", "run", "--simgpu", "node", "--name", "host", "--memory", "2Gi", "--", "gpubench", "hold", "--bytes=1Gi", "--seconds=3600")
	reader, writer, err := os.Pipe()
	l.must(err)
	cmd.Stdin = reader
	h.stop = func() { _ = writer.Close() }
	go func() {
		defer reader.Close()
		_, err := n.Output(cmd)
		h.ended <- err
	}()
	l.eventually("the program runs", h.lost)
	return h
}

// lost says why the agent does not have the tenant with its memory, and nothing if it does.
func (h *hostTenant) lost() string {
	h.t.Helper()
	select {
	case err := <-h.ended:
		h.t.Fatalf("the program has ended: %v", err)
	default:
	}
	listing, err := h.listing(h.n)
	if err != nil {
		return err.Error()
	}
	for i := range listing.Tenants {
		t := &listing.Tenants[i]
		if t.Name == "host" && t.Shares[0].Limit == 2*gib && t.Shares[0].Used >= gib {
			return ""
		}
	}
	return fmt.Sprintf("tenants are %+v", listing.Tenants)
}

func (h *hostTenant) end() {
	h.t.Helper()
	h.stop()
	select {
	case err := <-h.ended:
		h.must(err)
	case <-h.ctx.Done():
		h.t.Fatal("the program does not end")
	}
	h.eventually("the tenant has ended", func() string {
		listing, err := h.listing(h.n)
		if err == nil && len(listing.Tenants) > 0 {
			return fmt.Sprintf("there are %d", len(listing.Tenants))
		}
		return reason(err)
	})
}
