package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// errDies is returned by what an agent does if it ends instead of an answer.
var errDies = errors.New("the agent dies")

// deeds is what an agent does when it is asked, by method.
type deeds map[control.Method]func() (any, error)

// line is agents of a run directory that follow each other: each serves until it dies.
type line struct {
	dir string

	mu sync.Mutex
	// asked is what the agents were asked, in order, as "method parameters".
	asked []string
	wg    sync.WaitGroup
	last  *net.UnixListener
}

// succession serves a run directory with agents, the next one where one dies.
// awaiting is an answer before which the asker is told for what the agent waits.
type awaiting struct {
	reasons []string
	answer  any
}

func succession(t *testing.T, agents ...deeds) *line {
	t.Helper()
	l := &line{dir: t.TempDir()}
	t.Setenv(rundir.Variable, l.dir)
	l.serve(t, agents)
	t.Cleanup(func() {
		l.mu.Lock()
		_ = l.last.Close()
		l.mu.Unlock()
		l.wg.Wait()
	})
	return l
}

func (l *line) serve(t *testing.T, agents []deeds) {
	socket := filepath.Join(l.dir, "agent.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Error(err)
		return
	}
	listener.SetUnlinkOnClose(false) // the next one's is there
	l.mu.Lock()
	l.last = listener
	l.mu.Unlock()
	server := control.Server{Log: slog.New(slog.DiscardHandler), Connections: func(int) {}, Handlers: map[control.Method]control.Handler{}}
	server.Handlers[control.MethodHello] = func(context.Context, *control.Peer, json.RawMessage) (any, error) {
		return control.Info{Protocol: control.ProtocolVersion, PID: os.Getpid()}, nil
	}
	for method, do := range agents[0] {
		server.Handlers[method] = func(ctx context.Context, _ *control.Peer, params json.RawMessage) (any, error) {
			l.mu.Lock()
			l.asked = append(l.asked, string(method)+" "+string(params))
			l.mu.Unlock()
			answer, err := do()
			if told, ok := answer.(awaiting); ok {
				for _, reason := range told.reasons {
					control.Tell(ctx, control.Awaited{Reason: reason})
				}
				answer = told.answer
			}
			if errors.Is(err, errDies) {
				if err := os.Remove(socket); err != nil {
					t.Error(err)
				}
				if len(agents) > 1 {
					l.serve(t, agents[1:]) //nolint:contextcheck // the next agent outlives this request
				}
				_ = listener.Close()
				<-ctx.Done() // so that nothing is answered
			}
			return answer, err
		}
	}
	l.wg.Go(func() { _ = server.Serve(t.Context(), listener) })
}

// of are the questions of a method.
func (l *line) of(method control.Method) (asked []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.asked {
		if strings.HasPrefix(a, string(method)+" ") {
			asked = append(asked, a)
		}
	}
	return asked
}

func (l *line) call(args ...string) (status int, said string) {
	var out, errOut bytes.Buffer
	a := &app{rundir: rundir.Path(), out: &out, err: &errOut, awayTime: time.Millisecond}
	status = a.execute(args)
	return status, out.String() + errOut.String()
}

// Who is asked when its agent dies is the next one, about the same share, and nothing is
// said that nobody knows.
func TestTheNextAgentIsAsked(t *testing.T) {
	train := control.Tenant{ID: "0badcafe", Name: "train", UID: os.Getuid(), User: "me", Layer: control.LayerNamespace, Held: true, Shares: []control.Share{{UUID: "GPU-0", Limit: 1 << 30}}}
	list := func() (any, error) {
		return control.Listing{Info: control.Info{Protocol: control.ProtocolVersion}, Tenants: []control.Tenant{train}}, nil
	}
	dies := func() (any, error) { return nil, errDies }
	does := func() (any, error) { return train, nil }
	unknown := func() (any, error) { return nil, control.Errorf(control.CodeNotFound, "there is no share") }
	moved := func() (any, error) { return nil, control.Errorf(control.CodeMoved, "ask the system agent") }
	refuses := func() (any, error) { return nil, control.Errorf(control.CodeRefused, "GPU 0 is full") }
	one := func(method control.Method, do func() (any, error)) deeds {
		return deeds{control.MethodList: list, method: do}
	}
	const stop, set, ls = control.MethodStop, control.MethodSet, control.MethodList
	set4 := []string{"set", "train", "--memory", "4Gi"}
	for name, c := range map[string]struct {
		agents []deeds
		args   []string
		asked  int
		status int
		says   []string
	}{
		"set, and the next one does it":        {[]deeds{one(set, dies), one(set, dies), one(set, does)}, set4, 3, 0, []string{"asking the next one", "train"}},
		"set, and the next one refuses":        {[]deeds{one(set, dies), one(set, refuses)}, set4, 2, 1, []string{"GPU 0 is full"}},
		"set, and the share has ended":         {[]deeds{one(set, dies), one(set, unknown)}, set4, 2, 1, []string{"train: the share has ended"}},
		"set of a share that is taken over":    {[]deeds{one(set, moved)}, set4, mostLost + 1, 1, []string{"whether train was changed is not known", "ask the system agent"}},
		"set of a share that has ended":        {[]deeds{one(set, unknown)}, set4, 1, 1, []string{`no such share: "train"`}},
		"stop, and the next one does it":       {[]deeds{one(stop, dies), one(stop, does)}, []string{"stop", "train"}, 2, 0, nil},
		"stop, and the share has ended":        {[]deeds{one(stop, dies), one(stop, unknown)}, []string{"stop", "train"}, 2, 1, []string{"the share has ended", "may go on"}},
		"stop, and nobody follows":             {[]deeds{one(stop, dies)}, []string{"stop", "train"}, 1, 1, []string{"the share has ended", "may go on"}},
		"ls, and the next one knows":           {[]deeds{one(ls, dies), one(ls, dies), one(ls, dies), one(ls, list)}, []string{"ls"}, 4, 0, []string{"train"}},
		"ls of agents that each question ends": {slices.Repeat([]deeds{one(ls, dies)}, mostLost+1), []string{"ls"}, mostLost, 1, []string{"which shares there are is not known"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := succession(t, c.agents...)
			status, said := l.call(c.args...)
			if status != c.status || strings.Contains(said, "No shares") {
				t.Errorf("exit status %d, want %d: %s", status, c.status, said)
			}
			for _, words := range c.says {
				if !strings.Contains(said, words) {
					t.Errorf("%q does not say %q", said, words)
				}
			}
			asked := l.of(control.Method(c.args[0]))
			if c.args[0] == "ls" {
				asked = l.of(ls)
			}
			if len(asked) != c.asked || len(slices.Compact(slices.Clone(asked))) != 1 {
				t.Errorf("asked %q, want the same %d times", asked, c.asked)
			}
			if c.args[0] != "ls" && !strings.Contains(asked[0], `"0badcafe"`) {
				t.Errorf("asked %q, which may become another share", asked[0])
			}
		})
	}
}

// What is asked about a GPU or a device is about no share, also where the agent that was asked ends.
func TestNoShareHasEndedWhereNoneIsAskedAbout(t *testing.T) {
	dies := func() (any, error) { return nil, errDies }
	unknown := func() (any, error) { return nil, control.Errorf(control.CodeNotFound, "there is no GPU 7") }
	for name, c := range map[string]struct {
		method control.Method
		args   string
		next   func() (any, error)
		says   []string
	}{
		"a GPU, and the next one knows none":    {control.MethodGiveForm, "gpu set 7 --form mps", unknown, []string{"the agent ended before it answered, and the next one says: there is no GPU 7"}},
		"a GPU, and nobody follows":             {control.MethodGiveForm, "gpu set 7 --form mps", nil, []string{"the agent ended before it answered: no agent serves this machine's own GPUs"}},
		"a device, and the next one knows none": {control.MethodTakeDevice, "vm claim --gpu 7 --form passthrough", unknown, []string{"the next one says: there is no GPU 7"}},
		"a device, and nobody follows":          {control.MethodTakeDevice, "vm claim --gpu 7 --form passthrough", nil, []string{"the agent ended before it answered: no agent serves this machine", "--vm-only"}},
	} {
		agents := []deeds{{c.method: dies}}
		if c.next != nil {
			agents = append(agents, deeds{c.method: c.next})
		}
		status, said := succession(t, agents...).call(strings.Fields(c.args)...)
		for _, words := range c.says {
			if status != 1 || !strings.Contains(said, words) || strings.Contains(said, "the share has ended") {
				t.Errorf("%s: status %d, %q, want %q", name, status, said, words)
			}
		}
	}
}

// Where the system agent dies and stays away, nobody knows whether it did what it was asked.
func TestNobodyKnowsWhatTheLastAgentDid(t *testing.T) {
	train := control.Tenant{ID: "0badcafe", Name: "train", UID: os.Getuid()}
	agent := deeds{control.MethodList: func() (any, error) { return control.Listing{Tenants: []control.Tenant{train}}, nil }}
	for _, method := range []control.Method{control.MethodSet, control.MethodStop} {
		agent[method] = func() (any, error) { return nil, errDies }
	}
	for args, says := range map[string]string{
		"set train --cores 20": "whether train was changed is not known", "stop train": "whether train has ended is not known",
	} {
		l := succession(t, agent)
		if err := rundir.WriteMark(l.dir, rundir.Mark{Agent: process.ID{PID: 1, Start: 1 << 60}, Tenants: l.dir}); err != nil {
			t.Fatal(err)
		}
		status, said := l.call(strings.Fields(args)...)
		for _, words := range []string{says, "the system agent is away since", "`divvy ls` tells"} {
			if status != 1 || !strings.Contains(said, words) {
				t.Errorf("%s: exit status %d, %q does not say %q", args, status, said, words)
			}
		}
	}
}
