package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// extenders are the replicas, one of which leads.
var extenders = []string{"extender-a", "extender-b"}

// second is a scheduler that runs beside the other for a while.
const second = "kube-scheduler-second"

// starts are the programs that are being started and do not answer yet.
type starts struct {
	mutex  sync.Mutex
	begins map[string]bool
	group  sync.WaitGroup
}

// startLimit bounds how long a program's start is waited for: one that finds no API server may end before it answers, and is
// started again later.
const startLimit = 15 * time.Second

// connect makes the replicas' pods, and writes the credentials of whoever is to meet troubles, which lead to the front.
func (s *siege) connect(ctx context.Context) error {
	for _, name := range extenders {
		if err := s.addReplica(ctx, name); err != nil {
			return err
		}
	}
	return s.writeTroubled(s.front)
}

// writeTroubled writes credentials that lead to a front.
func (c *cluster) writeTroubled(front *plane.Front) error {
	file := api.NewConfig()
	file.Clusters["front"] = &api.Cluster{Server: front.URL, InsecureSkipTLSVerify: true}
	file.AuthInfos["front"] = &api.AuthInfo{Token: c.Config().BearerToken}
	file.Contexts["front"] = &api.Context{Cluster: "front", AuthInfo: "front"}
	file.CurrentContext = "front"
	if err := clientcmd.WriteToFile(*file, c.troubled()); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	return nil
}

// troubled is the file of these credentials.
func (c *cluster) troubled() string { return c.file("front") }

// keep has those programs started that do not run, and does not wait for them.
func (s *siege) keep(ctx context.Context) {
	for _, name := range extenders {
		s.keepOne(ctx, name, func(ctx context.Context) error {
			program, err := s.extenderOf(name, s.troubled(), lease...)
			if err != nil {
				return err
			}
			program.Ready = plane.Answers("/metrics") // only who leads is ready
			_, err = s.Run(ctx, program)
			return err
		})
	}
	s.keepOne(ctx, schedulerProgram, func(ctx context.Context) error {
		return s.startScheduler(ctx, schedulerProgram, s.service.url(), s.troubled())
	})
}

func (s *siege) keepOne(ctx context.Context, name string, start func(ctx context.Context) error) {
	s.starts.mutex.Lock()
	defer s.starts.mutex.Unlock()
	if p := s.Process(name); s.starts.begins[name] || p != nil && p.Alive() == nil {
		return
	}
	s.starts.begins[name] = true
	s.starts.group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		if err := start(ctx); err != nil {
			s.Say("%v", err)
		}
		s.starts.mutex.Lock()
		defer s.starts.mutex.Unlock()
		s.starts.begins[name] = false
	})
}

// ready tells the replica that says it is ready, and where it answers.
func (s *siege) ready(ctx context.Context) (name, address string) {
	for _, name := range extenders {
		p := s.Process(name)
		if p == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		_, err := p.Get(ctx, "/readyz")
		cancel()
		if err == nil {
			return name, fmt.Sprintf("127.0.0.1:%d", p.Port(1))
		}
	}
	return "", ""
}

// freeze stops an extender in the middle of what it does, thaw lets it go on.
func (s *siege) freeze(name string) {
	if p := s.Process(name); p != nil && p.Signal(syscall.SIGSTOP) == nil {
		s.frozen = name
	}
}

func (s *siege) thaw() {
	if s.frozen != "" {
		_ = s.Process(s.frozen).Signal(syscall.SIGCONT) // it may be dead
		s.frozen = ""
	}
}

// followsPods reports whether a request follows pods or nodes, or lists them.
func followsPods(r *http.Request) bool {
	return r.Method == http.MethodGet && slices.ContainsFunc([]string{"/pods", "/nodes"}, func(end string) bool { return strings.HasSuffix(r.URL.Path, end) })
}

func wholeGPUs(n int64) asked {
	return asked{limits: corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(n, resource.DecimalSI)}}
}

func part(gpus, memory, cores int64) asked {
	a := wholeGPUs(gpus)
	a.limits[v1alpha1.ResourceMemory] = *resource.NewQuantity(memory<<30, resource.BinarySI)
	if cores > 0 {
		a.limits[v1alpha1.ResourceCores] = *resource.NewQuantity(cores, resource.DecimalSI)
	}
	return a
}

// siegeKinds are the pods of the load: shares large and small, of one GPU and of several, two in one pod, whole GPUs, and plain
// ones.
func siegeKinds() ([]kind, error) {
	two := part(1, 20, 10)
	two.beside = part(1, 30, 20).limits
	all := []struct {
		name string
		asked
	}{
		{"tiny", part(1, 1, 1)}, {"small", part(1, 5, 10)}, {"weighted", part(1, 10, 0)}, {"half", part(1, 39, 50)}, {"most", part(1, 60, 70)},
		{"pair", part(2, 20, 25)}, {"four", part(4, 10, 5)}, {"two", two}, {"whole", wholeGPUs(1)}, {"wholes", wholeGPUs(2)}, {"plain", asked{}},
	}
	kinds := make([]kind, len(all))
	for i := range all {
		var err error
		if kinds[i], err = kindOf(all[i].name, all[i].asked); err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// lease has the replicas elect a leader that others leave alone for a few seconds. Between the end of its writing and theirs are two,
// in which a request of its comes through that a trouble holds up.
var lease = []string{"--lease-duration=4s", "--lease-renew-deadline=2s", "--lease-retry-period=500ms"}
