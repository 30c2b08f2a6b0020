// Command k8s measures what Divvy costs in a cluster, on real kubelets with simulated GPUs: how long the kubelet waits for
// a claim to be prepared, what the agent takes with 100 shares, and how soon another pod gets what one frees. It writes
// docs/measurements/k8s.json, and beside it backends.json for MPS and mig.json for MIG. It needs root, and removes its
// cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// options are the command's flags.
type options struct {
	out      string
	backends string
	mig      string
	only     string
	quick    bool
	verbose  bool
}

// longest bounds the whole of it, on a busy machine.
const longest = 25 * time.Minute

func main() {
	var o options
	flag.StringVar(&o.out, "out", "docs/measurements/k8s.json", "file to merge the figures into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so: k8s.prepare_p99, k8s.agent, k8s.freed, "+mpsID+", "+migID)
	flag.StringVar(&o.backends, "backends", "docs/measurements/backends.json", "file to merge the figures of MPS into")
	flag.StringVar(&o.mig, "mig", "docs/measurements/mig.json", "file to merge the figures of MIG instances into")
	flag.BoolVar(&o.quick, "quick", false, "fewer pods and shorter looks, to see whether something works; writes nothing")
	flag.BoolVar(&o.verbose, "v", false, "tell what happens")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench k8s:", err)
		os.Exit(1)
	}
}

// run ends what it started also when it is interrupted.
func run(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	b := &bench{options: o, plan: whole}
	if o.quick {
		b.plan = short
	}
	if b.cluster, err = open(ctx, b.say); err != nil {
		return err
	}
	rows, err := b.measure(ctx)
	if err != nil {
		err = errors.Join(err, b.restarts(context.WithoutCancel(ctx)))
	}
	if stopped := b.cluster.Stop(); err != nil || stopped != nil {
		return errors.Join(err, stopped)
	}
	for _, row := range rows {
		fmt.Printf("%-28s %-24s %8.2f %s (worst %.2f, %d runs)\n", row.ID, row.Case, row.Value, row.Unit, row.Worst, row.Runs)
	}
	if o.quick {
		return nil
	}
	return merge(o, rows)
}

// merge writes each row into its file.
func merge(o options, rows []measurement.Row) error {
	files := map[string][]measurement.Row{}
	for _, row := range rows {
		file := o.out
		switch row.ID {
		case mpsID:
			file = o.backends
		case migID:
			file = o.mig
		}
		files[file] = append(files[file], row)
	}
	for file, rows := range files {
		if err := measurement.Merge(file, rows); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) say(format string, args ...any) {
	if b.options.verbose {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// open starts a cluster of one node with the most GPUs that a machine has.
func open(ctx context.Context, log func(string, ...any)) (*cluster.Cluster, error) {
	var images []string
	for _, name := range []string{"divvy", "gpubench"} {
		archive, err := cluster.Image(name)
		if err != nil {
			return nil, err
		}
		images = append(images, archive)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes:  []cluster.Node{{Name: nodeName, Machine: "h100x8", Labels: map[string]string{v1alpha1.NodeLabel: ""}}},
		Images: images, Log: log,
	})
	if err != nil {
		return nil, err
	}
	if err := c.Install(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}
