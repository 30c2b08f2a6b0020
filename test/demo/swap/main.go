// Command swap shows more memory than a GPU has: two tenants of 3 GiB each on a GPU of 4 take turns and keep their contents. Without
// an agent nobody gives turns, and they drive each other's memory out; the next agent goes on. An idle tenant's memory sleeps in host
// memory until its program's next call. It checks what it shows, prints a summary, and fails if a check failed. Everything it
// starts it stops.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/divvy-gpu/divvy/test/bench/simulated"
	"github.com/divvy-gpu/divvy/test/demo/screen"
)

// link is the rate of the GPU's link to the host, GB a second.
const link = 32

func main() {
	prefix := flag.String("prefix", "build", "where Divvy was built")
	flag.Parse()
	if err := run(*prefix); err != nil {
		fmt.Fprintln(os.Stderr, "demo-swap:", err)
		os.Exit(1)
	}
}

func run(prefix string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "divvy-demo-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := simulated.SwapMachine(dir, link)
	if err != nil {
		return err
	}
	machine, err := simulated.Open(ctx, prefix, file)
	if err != nil {
		return err
	}
	s := &show{Machine: machine, screen: screen.New(os.Stdout)}
	err = s.play()
	s.screen.Rest()
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	err = errors.Join(err, s.close())
	if passed := s.screen.Summary(); !passed && err == nil {
		err = errors.New("a check failed")
	}
	return err
}
