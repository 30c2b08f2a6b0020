package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

// queuesOptions are the flags of divvy queues.
type queuesOptions struct {
	access
	output string
	watch  bool
}

func newQueues(a *app) *cobra.Command {
	var o queuesOptions
	command := &cobra.Command{
		Use:   "queues",
		Short: "Show the queues of a Kubernetes cluster, and follow them",
		Long: `Show the tree of queues: for each model of GPU and unit what is guaranteed to a
queue in effect, what it is entitled to, what it uses, what of its idle guarantee
others use, what it uses beyond its own, and what its pods hold or ask for; how
many pods and gangs run and wait in it and its parts; and what is wrong with it.
GPUs are counted in GPUs, memory in bytes, cores in percent of a GPU.

With --watch a terminal is drawn anew whenever something changes, until Ctrl-C; a
pipe or file gets a line for each change, with -o json an object. It needs the
right to read queues, which the ClusterRole divvy-queues gives.`,
		Example: `  divvy queues
  divvy queues --watch
  divvy queues --watch -o json | jq 'select(.waiting > 0) | .name'`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) },
	}
	flags := command.Flags()
	o.flags(flags)
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	flags.BoolVarP(&o.watch, "watch", "w", false, "follow the queues until Ctrl-C")
	return command
}

// watchPause is how long nobody asks a cluster whose watch has ended.
const watchPause = time.Second

func (o *queuesOptions) run(ctx context.Context, a *app) error {
	if err := checkOutput(o.output); err != nil {
		return err
	}
	reader, err := o.connect(a, "divvy-queues")
	if err != nil {
		return err
	}
	if !o.watch {
		queues, err := reader.Queues(ctx)
		if err != nil {
			return err
		}
		return a.print(o.output, map[string]any{"queues": queues}, func(w *strings.Builder) { writeQueues(w, queues) })
	}
	shown := &shownQueues{a: a, now: time.Now, json: o.output == "json", terminal: program.IsTerminal(a.out)}
	say := func(err error) { program.Say(a.err, "divvy: %v; trying again", err) }
	return reader.FollowQueues(ctx, watchPause, say, shown.show)
}

// shownQueues is what was shown of queues last.
type shownQueues struct {
	a              *app
	now            func() time.Time
	json, terminal bool

	screen string
	lines  map[string]string
}

// change is a queue that has changed, as JSON.
type change struct {
	Time time.Time `json:"time"`
	explanation.Queue
	// Deleted tells that there is no such queue any more.
	Deleted bool `json:"deleted,omitempty"`
}

// show draws a terminal anew, or writes what has changed.
func (s *shownQueues) show(queues []explanation.Queue) error {
	var text strings.Builder
	if s.terminal && !s.json {
		writeQueues(&text, queues)
		if text.String() == s.screen {
			return nil
		}
		s.screen = text.String()
		return s.write(program.ClearScreen + s.screen)
	}
	now, next := s.now().UTC().Truncate(time.Second), map[string]string{}
	for i := range queues {
		q := &queues[i]
		line, err := s.line(q)
		if err != nil {
			return err
		}
		if next[q.Name] = line; s.lines[q.Name] != line {
			if err := s.changed(&text, change{Time: now, Queue: *q}, line); err != nil {
				return err
			}
		}
	}
	for _, name := range sortedKeys(s.lines) {
		if _, there := next[name]; !there {
			if err := s.changed(&text, change{Time: now, Queue: explanation.Queue{Name: name, Resources: []v1alpha1.QueueUse{}}, Deleted: true}, name+": deleted"); err != nil {
				return err
			}
		}
	}
	s.lines = next
	return s.write(text.String())
}

// line is what is told of a queue on one line.
func (s *shownQueues) line(q *explanation.Queue) (string, error) {
	if s.json {
		text, err := json.Marshal(q)
		return string(text), err
	}
	return queueLine(q), nil
}

func (s *shownQueues) changed(w *strings.Builder, c change, line string) error {
	if !s.json {
		fmt.Fprintf(w, "%s %s\n", c.Time.Format(time.RFC3339), line)
		return nil
	}
	if err := json.NewEncoder(w).Encode(c); err != nil {
		return fmt.Errorf("encode a queue: %w", err)
	}
	return nil
}

func (s *shownQueues) write(text string) error {
	if _, err := io.WriteString(s.a.out, text); err != nil {
		return fmt.Errorf("write the queues: %w", err)
	}
	return nil
}
