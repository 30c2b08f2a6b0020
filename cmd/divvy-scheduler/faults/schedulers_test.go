package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// replicas are the schedulers that run, one of which leads.
var replicas = []string{"first", "second"}

// starts are how often schedulers were started, and which of them do not answer yet.
type starts struct {
	count    atomic.Int64
	starting sync.WaitGroup
	begins   map[string]*atomic.Bool
}

// connect writes the credentials of the schedulers, which lead to the front.
func (w *world) connect() {
	w.t.Helper()
	file := api.NewConfig()
	file.Clusters["front"] = &api.Cluster{Server: w.front.URL, InsecureSkipTLSVerify: true}
	file.AuthInfos["front"] = &api.AuthInfo{Token: w.Config().BearerToken, Impersonate: account}
	file.Contexts["front"] = &api.Context{Cluster: "front", AuthInfo: "front"}
	file.CurrentContext = "front"
	for _, name := range replicas {
		file.AuthInfos["front"].ImpersonateUserExtra = map[string][]string{"replica": {name}} // for who reads the audit
		w.must(clientcmd.WriteToFile(*file, w.kubeconfig(name)))
	}
}

func (w *world) kubeconfig(name string) string { return filepath.Join(w.Dir(), "front-"+name) }

// start starts those schedulers that do not run, and waits until they answer.
func (w *world) start() {
	w.t.Helper()
	w.keep()
	w.starting.Wait()
}

// keep has those schedulers started that do not run, and does not wait for them. One that finds no API server may end before it
// answers; it is started again later.
func (w *world) keep() {
	w.t.Helper()
	for _, name := range replicas {
		if w.single && name != replicas[0] || w.begins[name].Load() {
			continue
		}
		if p := w.Process(name); p != nil && p.Alive() == nil {
			continue
		}
		w.begins[name].Store(true)
		number := w.count.Add(1)
		w.starting.Go(func() {
			defer w.begins[name].Store(false)
			w.run(name, number, "")
		})
	}
}

// crashing starts a scheduler that kills itself after a step.
func (w *world) crashing(name, step string) {
	w.t.Helper()
	w.starting.Wait()
	w.Process(name).Kill()
	w.run(name, w.count.Add(1), step)
}

// startLimit bounds how long a scheduler's start is waited for.
const startLimit = 10 * time.Second

func (w *world) run(name string, number int64, crash string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), startLimit)
	defer cancel()
	program, err := w.program(name, number, crash)
	if err == nil {
		_, err = w.Run(ctx, program)
	}
	if err != nil && w.t.Context().Err() == nil {
		w.t.Logf("%v", err)
	}
}

func (w *world) program(name string, number int64, crash string) (plane.Program, error) {
	prefix := os.Getenv("DIVVY_PREFIX")
	if prefix == "" {
		prefix = filepath.Join(checkout, "build")
	}
	path, err := filepath.Abs(filepath.Join(prefix, "test", "scheduler", "crashing"))
	if err != nil {
		return plane.Program{}, err
	}
	marks := filepath.Join(w.Dir(), fmt.Sprintf("marks-%d", number))
	if err := os.MkdirAll(marks, 0o700); err != nil {
		return plane.Program{}, err
	}
	duration, deadline := leaseDuration, "2s"
	if w.patient {
		duration, deadline = "12s", "10s"
	}
	elect := []string{
		"--leader-elect=true", "--leader-elect-lease-duration=" + duration, "--leader-elect-renew-deadline=" + deadline, "--leader-elect-retry-period=500ms",
		"--leader-elect-resource-namespace=" + namespace,
	}
	if w.single {
		elect = []string{"--leader-elect=false"}
	}
	return plane.Program{
		Name: name, Path: path, Ports: 1, Scheme: "https",
		// What is on its way to the API server may be lost, so that it need not be ready.
		Ready: plane.Answers("/metrics"),
		Env:   []string{"DIVVY_CRASH_AFTER=" + crash, "DIVVY_CRASH_MARKS=" + marks},
		Args: func(ports []int) []string {
			return append([]string{
				"--kubeconfig=" + w.kubeconfig(name), "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(ports[0]),
				"--authentication-kubeconfig=" + w.kubeconfig(name), "--authorization-kubeconfig=" + w.kubeconfig(name),
				"--authentication-skip-lookup", "--cert-dir=" + filepath.Join(w.Dir(), name), "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
			}, elect...)
		},
	}, nil
}

// leaseDuration leaves a request of a leader two seconds to come through after the leader's renew deadline: the troubles of the
// way take less than one, and the machine may be busy.
const leaseDuration = "4s"

// leads is a scheduler's figure of its lease.
var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{.*\} 1$`)

// leader is the scheduler that leads, "" where none says so.
func (w *world) leader() string {
	for _, name := range replicas {
		if name == w.frozen || w.Process(name) == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		text, err := w.Process(name).Get(ctx, "/metrics")
		cancel()
		if err == nil && (w.single || leads.Match(text)) {
			return name
		}
	}
	return ""
}

// freeze stops a scheduler in the middle of what it does, thaw lets it go on.
func (w *world) freeze(name string) {
	if w.Process(name).Signal(syscall.SIGSTOP) == nil {
		w.frozen = name
	}
}

func (w *world) thaw() {
	if w.frozen != "" {
		_ = w.Process(w.frozen).Signal(syscall.SIGCONT) // it may be dead
		w.frozen = ""
	}
}
