// Command gpu-test tries Divvy on a machine with a GPU and writes one report. It runs programs natively and in shares,
// compares what they got, and says for each question what was expected and what another answer would mean. It needs no
// root, no network and no compiler; it changes no setting of a GPU, and leaves behind the report alone, and what the
// agent of a user keeps in memory until the machine restarts.
//
// With -simgpu the same runs on the simulated driver. That shows that this program works, and nothing about a GPU.
//
// Exit status: 0 all questions are answered as expected or were skipped with a reason, 1 another answer, 2 wrong usage
// or nothing could be tried.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

type options struct {
	simgpu, gpu, out, tree, only string
	limit                        time.Duration
	thorough, list               bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status, err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gpu-test:", err)
	}
	os.Exit(status)
}

const usage = `Usage: gpu-test [flags]

Tries Divvy on this machine's GPU in at most ten minutes and writes a report for you to read and to send. It needs
NVIDIA's driver and neither root nor network, changes no setting, and sends nothing.
Exit status: 0 all answers are as expected or skipped, 1 another or no answer, or not finished, 2 nothing could be tried.

`

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("gpu-test", flag.ContinueOnError)
	flags.StringVar(&o.gpu, "gpu", "", "index of the GPU by nvidia-smi (default: the one with the most free memory)")
	flags.StringVar(&o.out, "out", "", "the report's file (default: "+reportName+" here or, where nothing can be written, at home)")
	flags.StringVar(&o.only, "only", "", "run the cases whose names match this pattern")
	flags.DurationVar(&o.limit, "limit", 10*time.Minute, "time for all cases together")
	flags.BoolVar(&o.thorough, "thorough", false, "repeat measurements until their medians are worth keeping: about half an hour")
	flags.BoolVar(&o.list, "list", false, "list the cases and what each asks")
	flags.StringVar(&o.simgpu, "simgpu", "", "a simulated machine, or a file that describes one: tries this program, not a GPU")
	flags.StringVar(&o.tree, "tree", "", "folder of the unpacked archive (default: this program's)")
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("read the command line: %q is not understood", flags.Arg(0))
	}
	set := false
	flags.Visit(func(f *flag.Flag) { set = set || f.Name == "limit" })
	if o.thorough && !set {
		o.limit = 40 * time.Minute
	}
	if o.tree == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find the archive's folder: %w", err)
		}
		o.tree = filepath.Dir(self)
	}
	tree, err := filepath.Abs(o.tree)
	o.tree = tree
	return o, err
}

func run(ctx context.Context, args []string) (status int, err error) {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0, err
	}
	if err != nil {
		return 2, err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return 2, fmt.Errorf("read -only: %w", err)
	}
	chosen := choose(only)
	if len(chosen) == 0 {
		return 2, fmt.Errorf("choose cases: none matches %q; -list names them", o.only)
	}
	if o.list {
		for _, c := range chosen {
			fmt.Printf("%-17s %s\n", c.name, c.asks)
		}
		return 0, nil
	}
	return try(ctx, o, chosen)
}

// try runs the cases and writes the report, also when it is interrupted or the machine turns out to have no GPU.
func try(ctx context.Context, o options, chosen []testCase) (int, error) {
	place, err := reportPlace(o.out)
	if err != nil {
		return 2, err
	}
	b, err := newBench(ctx, o)
	if err != nil {
		removeEmpty(place)
		return 2, err
	}
	defer b.close(ctx)
	r := newReport(ctx, b)
	within, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	for _, c := range chosen {
		outcome := b.answer(within, c)
		r.add(outcome)
		if b.unable == "" || outcome.ran {
			fmt.Printf("%-17s %s\n", c.name, outcome.line())
		}
	}
	r.Unfinished = within.Err() != nil
	if place, err = r.writeSomewhere(place); err != nil {
		return 2, err
	}
	if b.unable == "" || r.answered() {
		fmt.Printf("\n%s\n", r.summary())
	}
	fmt.Printf("The report is %s. It has no names of users, machines and folders; read it, and send it if you like.\n", place)
	switch {
	case b.unable != "" && !r.answered():
		return 2, fmt.Errorf("try the GPU: %s", b.unable)
	case r.Unfinished || r.count(differed)+r.count(failed) > 0:
		return 1, nil
	}
	return 0, nil
}
