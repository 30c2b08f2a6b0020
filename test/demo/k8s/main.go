// Command k8s shows three pods that want one GPU of a real Kubernetes cluster:
// two fit, the third waits, is told why, and starts when one of them has gone.
// The cluster lives in namespaces of its own and its GPU is simulated. It checks
// what it shows, prints a summary, and fails if a check failed. Nothing is left
// of it, also after Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/demo/screen"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// longest bounds the whole show, on a busy machine.
const longest = 10 * time.Minute

func main() {
	passed, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}

func run() (passed bool, err error) {
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(interrupted, longest)
	defer cancel()
	s := &show{Screen: screen.New(os.Stdout), begun: time.Now(), limits: make(map[string]uint64)}
	if s.cluster, err = s.open(ctx); err != nil {
		return false, err
	}
	err = s.play(ctx)
	s.Rest()
	if interrupted.Err() != nil {
		err = errors.New("interrupted")
	}
	stopped := s.cluster.Stop()
	if stopped == nil {
		s.Check(true, "all of it is gone again after %.0f s", time.Since(s.begun).Seconds())
	}
	return s.Summary(), errors.Join(err, stopped)
}

// open starts the cluster: one node with one GPU of 16 GiB.
func (s *show) open(ctx context.Context) (*cluster.Cluster, error) {
	s.Say("A Kubernetes cluster %s starts: one node, one simulated GPU of 16 GiB.", cluster.DefaultVersion)
	images := make([]string, 0, 2)
	for _, name := range []string{"divvy", "gpubench"} {
		archive, err := cluster.Image(name)
		if err != nil {
			return nil, err
		}
		images = append(images, archive)
	}
	return cluster.Start(ctx, cluster.Options{
		Nodes: []cluster.Node{{
			Name: "node-1", Machine: "a100-80g", MachineFlags: []string{"--memory", "16Gi"},
			Labels: map[string]string{v1alpha1.NodeLabel: ""},
		}},
		Images: images,
	})
}
