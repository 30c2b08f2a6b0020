// Command demo shows three tenants on one GPU: one works, one asks for more than
// its share and is refused, one is killed and its memory comes back. It checks
// what it shows, prints a summary, and fails if a check failed. Everything it
// starts it stops, also on Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/test/demo/screen"
)

// longest bounds every wait for something that takes milliseconds.
const longest = 2 * time.Minute

func main() {
	prefix := flag.String("prefix", "build", "where Divvy was built")
	real := flag.Bool("real", false, "use this machine's GPU instead of a simulated one")
	flag.Parse()
	passed, err := run(*prefix, *real)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}

func run(prefix string, real bool) (passed bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	prefix, err = filepath.Abs(prefix)
	if err != nil {
		return false, err
	}
	m, err := open(ctx, prefix, real)
	if err != nil {
		return false, err
	}
	s := &show{machine: m, screen: screen.New(os.Stdout)}
	err = s.play(ctx)
	s.screen.Rest()
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted")
	}
	if closeErr := m.close(context.WithoutCancel(ctx)); err == nil {
		err = closeErr
	}
	passed = s.screen.Summary()
	if passed && err == nil {
		fmt.Print(next)
	}
	return passed, err
}

// next is what a person who has seen the demonstration does.
const next = `
Now yours, on a machine with a GPU:  build/bin/divvy run --memory 8Gi -- python train.py
For everybody on a server:           make dist, and then docs/lab.md
On a Kubernetes cluster:             docs/kubernetes.md
`
