package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/alloc/replay"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/queuefile"
)

// replayQueues replays a trace with queues, once for each policy.
func (a *app) replayQueues(command *cobra.Command, f *replayFlags) error {
	if f.queues == "" {
		return usage(errors.New("--assign is for --queues: give both"))
	}
	for _, other := range []string{"churn", "plot", "until", "seeds", "events"} {
		if command.Flags().Changed(other) {
			return usage(fmt.Errorf("--%s cannot be combined with --queues, which follows the trace's own times", other))
		}
	}
	if _, _, err := f.validate(); err != nil {
		return err
	}
	parts, err := partsOf(f.assign)
	if err != nil {
		return err
	}
	trace, err := readQueuedTrace(f)
	if err != nil {
		return err
	}
	if err := trace.Deal(parts); err != nil {
		return usage(fmt.Errorf("--assign %s: %w", strings.Join(f.assign, ","), err))
	}
	if trace.InQueues() == 0 {
		return usage(fmt.Errorf("no pod of %s that asks for GPUs is in a queue: give it a column queue or names NAMESPACE/NAME, or deal its pods with --assign %s=1", f.pods, trace.Queues[0].Name))
	}
	bar := newProgress(a.err, len(f.policies))
	defer bar.done()
	results, err := eachRun(command.Context(), f, func(ctx context.Context, policy string, seed int64, progress func(int)) (replay.QueueResult, error) {
		return trace.Run(ctx, replay.QueueOptions{Policy: policy, Seed: seed, Progress: progress})
	}, bar)
	if err != nil {
		return err
	}
	bar.done()
	return a.printQueues(f, results)
}

// partsOf reads QUEUE=PARTS.
func partsOf(texts []string) (parts []replay.Part, err error) {
	for _, text := range texts {
		name, number, _ := strings.Cut(text, "=")
		weight, err := strconv.ParseInt(number, 10, 64)
		if err != nil || name == "" {
			return nil, usage(fmt.Errorf("--assign %s: give QUEUE=PARTS, such as vision=3,speech=1", text))
		}
		parts = append(parts, replay.Part{Queue: name, Weight: weight})
	}
	return parts, nil
}

func readQueuedTrace(f *replayFlags) (*replay.QueuedTrace, error) {
	trace := &replay.QueuedTrace{}
	err := reading(f.queues, func(r io.Reader) error {
		content, err := io.ReadAll(io.LimitReader(r, queuefile.MaxBytes+1))
		if err != nil {
			return fmt.Errorf("read %s: %w", f.queues, err)
		}
		trace.Queues, err = queuefile.Read(f.queues, content)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = reading(f.nodes, func(r io.Reader) (err error) {
		trace.Nodes, err = replay.ReadNodes(f.nodes, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return trace, reading(f.pods, func(r io.Reader) (err error) {
		trace.Pods, err = replay.ReadQueuedPods(f.pods, r, trace.Nodes, trace.Queues)
		return err
	})
}

// printQueues writes a line of JSON for each run, or charts and a table of totals.
func (a *app) printQueues(f *replayFlags, results []replay.QueueResult) error {
	if f.output == "json" {
		encoder := json.NewEncoder(a.out)
		for i := range results {
			if err := encoder.Encode(&results[i]); err != nil {
				return fmt.Errorf("write result: %w", err)
			}
		}
		return nil
	}
	var text strings.Builder
	for i := range results {
		writeQueues(&text, &results[i], len(results) > 1)
	}
	_, err := io.WriteString(a.out, text.String())
	return err
}

func writeQueues(w *strings.Builder, r *replay.QueueResult, named bool) {
	if named {
		fmt.Fprintf(w, "policy %s\n\n", r.Policy)
	}
	r.Chart(w)
	w.WriteString("\n'#' used within the entitlement, '+' beyond it, '.' entitlement that is not used\n\n")
	distances := map[string]float64{}
	for i := range r.Series {
		s := &r.Series[i]
		distances[s.Queue] = max(distances[s.Queue], s.Distance)
	}
	var t columns.Table
	t.Row("QUEUE", "ARRIVED", "STARTED", "WAITED", "LONGEST", "WAITING", "ENDED", "LOST", "DISTANCE")
	for _, q := range r.Totals {
		name, distance := q.Queue, fmt.Sprintf("%.1f", distances[q.Queue])
		if name == "" {
			name, distance = "(none)", ""
		}
		t.Row(name, strconv.Itoa(q.Arrived), strconv.Itoa(q.Started), seconds(q.Waited), seconds(q.LongestWaited), strconv.Itoa(q.Waiting),
			strconv.Itoa(q.EndedForOthers), fmt.Sprintf("%.1fh", q.Lost), distance)
	}
	var aligned strings.Builder
	t.Print(&aligned)
	for line := range strings.Lines(aligned.String()) {
		w.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	w.WriteString("\nENDED: for others; LOST: GPU hours of those; DISTANCE: of use from entitlement, in % of all GPUs\n")
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	if named {
		w.WriteString("\n")
	}
}

// seconds writes a time that a pod waited.
func seconds(s float64) string { return age(time.Duration(s * float64(time.Second))) }
