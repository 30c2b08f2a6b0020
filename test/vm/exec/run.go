package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/test/vm/kit"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// Times that a guest may take. Booting takes a few seconds, and most of a minute on a machine that is busy.
const (
	booting = 3 * time.Minute
	// boots is how often a guest boots that does not come to its tests.
	boots = 3
	// telling is for tests that are over their own limit to say where they are.
	telling = 30 * time.Second
	// unbounded is for tests without a limit of their own.
	unbounded = 30 * time.Minute
)

// options is what the command line says.
type options struct {
	shape machine.Shape
	// name is the shape's.
	name    string
	with    []string
	console string
	tests   string
	// arguments are those of the tests, limit the time that they may take once the guest has booted.
	arguments []string
	limit     time.Duration
}

func run(arguments []string) int {
	o, err := parsed(arguments)
	if err != nil {
		return fault(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	defer stop()
	p, err := find()
	if err != nil {
		return fault(err)
	}
	names, err := o.names(ctx)
	if err != nil {
		return fault(err)
	}
	if len(names) == 0 {
		fmt.Println("testing: warning: no tests to run\nPASS")
		return 0
	}
	k, err := kit.Open(filepath.Join(p.root, ".cache/vm-kit"))
	if errors.Is(err, kit.ErrMissing) {
		return without(names, err)
	}
	if err != nil {
		return fault(err)
	}
	status, err := boot(ctx, k, p, o)
	if err != nil {
		return fault(err)
	}
	return status
}

func fault(err error) int {
	fmt.Fprintln(os.Stderr, "vm:", err)
	return 1
}

func parsed(arguments []string) (options, error) {
	var o options
	set := flag.NewFlagSet("exec", flag.ContinueOnError)
	set.StringVar(&o.name, "shape", "whole", "the shape of the machine")
	words := set.String("append", "", "words for the kernel's command line")
	set.StringVar(&o.console, "console", "", "the file that gets what the kernel says")
	set.Func("with", "a file or folder of the source tree that the guest gets as well", func(path string) error {
		o.with = append(o.with, path)
		return nil
	})
	if err := set.Parse(arguments); err != nil {
		return options{}, err
	}
	if set.NArg() == 0 {
		return options{}, errors.New("it is told no tests to run: use it as go test -exec")
	}
	shape, err := machine.Named(o.name)
	if err != nil {
		return options{}, err
	}
	shape.Append = *words
	o.shape, o.tests, o.arguments = shape, set.Arg(0), set.Args()[1:]
	o.limit = limit(o.arguments) + telling
	return o, nil
}

// limit returns how long the tests give themselves.
func limit(arguments []string) time.Duration {
	for _, argument := range arguments {
		text, is := strings.CutPrefix(argument, "-test.timeout=")
		if length, err := time.ParseDuration(text); is && err == nil && length > 0 {
			return length
		}
	}
	return unbounded
}

// place is where the tests lie: the source tree, and their package's folder in it.
type place struct {
	root, below string
}

// find looks upwards from the working directory, which is the package's folder.
func find() (place, error) {
	dir, err := os.Getwd()
	if err != nil {
		return place{}, fmt.Errorf("find the source tree: %w", err)
	}
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "test/vm/exec")); err == nil {
			below, err := filepath.Rel(root, dir)
			return place{root: root, below: below}, err
		}
		if root == filepath.Dir(root) {
			return place{}, errors.New("find the source tree: tests run inside it only")
		}
	}
}

// names returns those of the tests that are to be run. It does not run the tests, which would break this machine.
func (o options) names(ctx context.Context) ([]string, error) {
	pattern := "."
	for _, argument := range o.arguments {
		if run, is := strings.CutPrefix(argument, "-test.run="); is {
			pattern, _, _ = strings.Cut(run, "/")
		}
	}
	list := exec.CommandContext(ctx, o.tests, "-test.list", pattern) //nolint:gosec // the tests that go test has built
	list.Stderr = os.Stderr
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	return strings.Fields(string(names)), nil
}

// without says of every test that it is skipped and why.
func without(names []string, why error) int {
	if slices.Contains(strings.Split(os.Getenv("DIVVY_REQUIRE"), ","), "vm") {
		return fault(fmt.Errorf("vm is promised by DIVVY_REQUIRE and missing: %w", why))
	}
	for _, name := range names {
		fmt.Printf("=== RUN   %s\n    SKIP: %v\n--- SKIP: %s (0.00s)\n", name, why, name)
	}
	fmt.Println("PASS")
	return 0
}
