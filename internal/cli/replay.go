package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/replay"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
)

// replayFlags are the flags of `divvy replay`.
type replayFlags struct {
	nodes, pods, until  string
	policies            []string
	output, plot, churn string
	seed                int64
	seeds, events       int
	queues              string
	assign              []string
}

func newReplayCommand(a *app) *cobra.Command {
	f := &replayFlags{}
	command := &cobra.Command{
		Use:   "replay",
		Short: "Replay a cluster's trace through the allocator",
		Long: `Replay a cluster's trace through Divvy's allocator. Pods arrive one by one, in an
order that depends on the seed, and a pod that fits nowhere is dropped. With
--churn pods also depart. Policies: ` + policyNames() + `.

With --queues pods come and end when the trace says so, wait for their queue, and
are ended for queues that take back what they are entitled to. What each queue
used is drawn against its entitlement. FILE has Queues as a cluster has them.

The files are CSV, also compressed with gzip, in the openb format or in Divvy's
own: see docs/replay.md.`,
		Example: `  divvy replay --nodes nodes.csv --pods pods.csv
  divvy replay --nodes nodes.csv --pods pods.csv --policy capacity,bestfit --seeds 10 --plot out.svg
  divvy replay --nodes nodes.csv --pods pods.csv --churn 85%
  divvy replay --nodes nodes.csv --pods pods.csv --queues queues.yaml --assign vision=3,speech=1`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if f.queues != "" || len(f.assign) > 0 {
				return a.replayQueues(command, f)
			}
			return a.replay(command.Context(), f)
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.nodes, "nodes", "", "`FILE` with the cluster's nodes")
	flags.StringVar(&f.pods, "pods", "", "`FILE` with the pods that arrive")
	flags.StringSliceVar(&f.policies, "policy", []string{alloc.DefaultPolicy}, "`NAMES` of policies to compare")
	flags.Int64Var(&f.seed, "seed", 42, "the first seed")
	flags.IntVar(&f.seeds, "seeds", 1, "how many seeds to replay, in parallel")
	flags.StringVar(&f.until, "until", "130%", "demand to arrive, in percent of the GPUs")
	flags.StringVarP(&f.output, "output", "o", "table", "`FORM`: table or json")
	flags.StringVar(&f.plot, "plot", "", "write curves of allocation and fragmentation, with --churn of fragmentation alone, to `FILE` as SVG")
	flags.StringVar(&f.churn, "churn", "", "let pods depart too, and keep the demand at this `LOAD` in percent of the GPUs")
	flags.IntVar(&f.events, "events", 100_000, "arrivals and departures with --churn")
	flags.StringVar(&f.queues, "queues", "", "`FILE` with queues, in YAML: follow the trace's own times")
	flags.StringSliceVar(&f.assign, "assign", nil, "with --queues, deal pods that are in no queue to queues, in proportion: `QUEUE=PARTS`")
	return command
}

func (f *replayFlags) validate() (until, load int, err error) {
	for _, name := range f.policies {
		if _, err := alloc.PolicyNamed(name); err != nil {
			return 0, 0, usage(err)
		}
	}
	switch {
	case f.nodes == "" || f.pods == "":
		return 0, 0, usage(errors.New("give both --nodes and --pods"))
	case f.output != "table" && f.output != "json":
		return 0, 0, usage(fmt.Errorf("unknown output %q: choose table or json", f.output))
	case f.seeds < 1 || f.seeds > 10_000:
		return 0, 0, usage(fmt.Errorf("--seeds %d: choose 1 to 10000", f.seeds))
	case f.events < 1:
		return 0, 0, usage(fmt.Errorf("--events %d: choose at least 1", f.events))
	}
	if until, err = percentage("--until", f.until); err != nil {
		return 0, 0, err
	}
	if f.churn != "" {
		load, err = percentage("--churn", f.churn)
	}
	return until, load, err
}

// percentage reads "130%" or "130".
func percentage(flag, text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || n < 1 || n > replay.MostUntil {
		return 0, usage(fmt.Errorf("%s %s: give 1%% to %d%%", flag, text, replay.MostUntil))
	}
	return n, nil
}

func (a *app) replay(ctx context.Context, f *replayFlags) error {
	until, load, err := f.validate()
	if err != nil {
		return err
	}
	trace, err := readTrace(f.nodes, f.pods)
	if err != nil {
		return err
	}
	bar := newProgress(a.err, len(f.policies)*f.seeds)
	defer bar.done()
	if load > 0 {
		results, err := eachRun(ctx, f, func(ctx context.Context, policy string, seed int64, progress func(int)) (replay.ChurnResult, error) {
			return trace.Churn(ctx, replay.ChurnOptions{Policy: policy, Seed: seed, Load: load, Events: f.events, Progress: progress, Curve: f.plot != ""})
		}, bar)
		if err != nil {
			return err
		}
		bar.done()
		if f.plot != "" {
			if err := writePlot(f.plot, func(w io.Writer) error { return replay.PlotChurn(w, results) }); err != nil {
				return err
			}
		}
		return printReplay(a, f, results, churnTable)
	}
	results, err := eachRun(ctx, f, func(ctx context.Context, policy string, seed int64, progress func(int)) (replay.Result, error) {
		return trace.Run(ctx, replay.Options{
			Policy: policy, Seed: seed, Until: until, Fragmentation: f.plot != "", Clock: time.Now,
			Progress: func(percent int) { progress(percent * 100 / until) },
		})
	}, bar)
	if err != nil {
		return err
	}
	bar.done()
	if f.plot != "" {
		if err := writePlot(f.plot, func(w io.Writer) error { return replay.Plot(w, results) }); err != nil {
			return err
		}
	}
	return printReplay(a, f, results, replayTable)
}

func readTrace(nodes, pods string) (*replay.Trace, error) {
	trace := &replay.Trace{}
	err := reading(nodes, func(r io.Reader) (err error) {
		trace.Nodes, err = replay.ReadNodes(nodes, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return trace, reading(pods, func(r io.Reader) (err error) {
		trace.Pods, err = replay.ReadPods(pods, r, trace.Nodes)
		return err
	})
}

// reading opens a file to be read.
func reading(path string, read func(io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return read(file)
}

func writePlot(path string, plot func(io.Writer) error) error {
	var svg strings.Builder
	if err := plot(&svg); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(svg.String()), 0o644); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
}

// eachRun runs every policy with every seed, as many at once as there are
// processors, and returns the results in order.
func eachRun[R any](ctx context.Context, f *replayFlags, run func(context.Context, string, int64, func(int)) (R, error), bar *progress) ([]R, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make([]R, len(f.policies)*f.seeds)
	faults := make(chan error, len(results))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range results {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var err error
			results[i], err = run(ctx, f.policies[i/f.seeds], f.seed+int64(i%f.seeds), func(percent int) { bar.set(i, percent) })
			bar.set(i, 100)
			faults <- err
		}()
	}
	var first error
	for range results {
		if err := <-faults; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return results, first
}

// printReplay writes a line of JSON for each run, or a table.
func printReplay[R any](a *app, f *replayFlags, results []R, rows func([]R) columns.Table) error {
	if f.output == "json" {
		encoder := json.NewEncoder(a.out)
		for _, result := range results {
			if err := encoder.Encode(result); err != nil {
				return fmt.Errorf("write result: %w", err)
			}
		}
		return nil
	}
	shown := rows(results)
	var text strings.Builder
	shown.Print(&text)
	_, err := a.out.Write([]byte(text.String()))
	return err
}

// policyNames are those of the policies, in lines that help has room for.
func policyNames() string {
	const most, before = 82, 36 // columns, and those before the first name
	var w strings.Builder
	column := before
	for i, name := range alloc.PolicyNames() {
		switch {
		case i == 0:
		case column+len(name) > most:
			w.WriteString(",\n")
			column = 0
		default:
			w.WriteString(", ")
		}
		w.WriteString(name)
		column += len(name) + len(", ")
	}
	return w.String()
}
