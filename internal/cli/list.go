package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

// format is how a list is printed.
type format string

// wide is the form of a table with all columns.
const wide format = "wide"

// formFlag is a flag with a format, of those that a command has.
type formFlag struct {
	form  *format
	known []string
}

// Set implements pflag.Value.
func (f formFlag) Set(text string) error {
	if !slices.Contains(f.known, text) {
		return errors.New("use " + alternatives(f.known))
	}
	*f.form = format(text)
	return nil
}

// Type implements pflag.Value.
func (f formFlag) Type() string { return "FORMAT" }

func (f formFlag) String() string {
	if f.form == nil {
		return ""
	}
	return string(*f.form)
}

// addFormat adds the flag for the format, with more than the usual ones.
func addFormat(command *cobra.Command, f *format, more ...string) {
	*f = "table"
	known := append([]string{"table", "json", "yaml"}, more...)
	command.Flags().VarP(formFlag{f, known}, "output", "o", alternatives(known))
	complete(command, "output", known...)
}

// alternatives are words as a sentence has them.
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// complete has the shell offer words for a flag.
func complete(command *cobra.Command, flag string, words ...string) {
	_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// print writes value as JSON or YAML, or the table.
func (f format) print(w io.Writer, value any, table func(*strings.Builder)) error {
	switch f {
	case "json":
		return writeJSON(w, value, "  ")
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode list: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	var text strings.Builder
	table(&text)
	_, err := io.WriteString(w, text.String())
	return err
}

// writeJSON writes a value and a line's end. What others named may end on a terminal: what is not printable is escaped in it.
func writeJSON(w io.Writer, value any, indent string) error {
	var document bytes.Buffer
	e := json.NewEncoder(&document)
	e.SetIndent("", indent)
	if err := e.Encode(value); err != nil {
		return fmt.Errorf("encode list: %w", err)
	}
	_, err := w.Write(text.Escape(document.Bytes()))
	return err
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// agents is the document that `divvy ls -o json` prints.
type agents struct {
	Agents []listing `json:"agents"`
	// Away are system agents that should run and do not.
	Away []absence `json:"away,omitempty"`
	// Held are GPUs that other users' own agents hold.
	Held []gpulock.Holder `json:"held,omitempty"`
	// Unserved are machines without an agent.
	Unserved []unserved `json:"unserved,omitempty"`
	// Remote are shares on other hosts.
	Remote []relay.Listed `json:"remote,omitempty"`
}

// listFlags are the flags of `divvy ls`.
type listFlags struct {
	machine string
	output  format
	selection
	watch time.Duration
}

func newList(a *app) *cobra.Command {
	f := &listFlags{}
	command := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List GPUs, shares and what they use",
		Long: `List GPUs, their shares and what these use, as the agents report it: the system's
agent or your own, and those of your simulated machines. Where no agent runs, the
driver tells of the GPUs and of the processes on them. While a system agent is
away, that is said, and the exit status is 1: its shares go on. GPUs that other
users' own agents hold are named with their holder. Your shares on other hosts are
listed too, also where no agent runs, and inside of them.

UTIL, TEMP and POWER are the driver's, and FREE is the memory that nobody uses. A
GPU of which more was granted than it has is marked with "!".

USED is what the share's processes have by the driver's figures; where the driver
does not tell, it is what they say themselves, marked with a star. OVERHEAD, which
they say themselves, is the part of USED that the driver takes for itself: contexts and
modules. TIME is the part of the GPU's time that the share had in the last
second. CORES is what it is guaranteed; with policy fixed it is also the most it
gets. A share that is "held back" had to wait for GPU time lately, for HELD of the
last second. RESIDENT is the part of a swap share's memory that can leave the GPU
which is there, and TURN says whether the share may use the GPU: "in" or "out",
"entering" or "leaving", and in how long others may have its room, or it has theirs;
"out, waits" if no time decides that. MOVED is what came to the GPU and what went to the
host at the ends of turns, since the share began.
REFUSED counts its allocations that were refused. LAYER is what
stands between the tenant and the driver: "namespace" covers the driver's files, "env"
relies on LD_LIBRARY_PATH. CLIENT is who uses a share from another host. Of other
users' commands you see the program alone.

Columns in which all shares have the usual are left out, and on a narrow terminal
those that are missed least; below 60 columns cells stand below each other. -o wide
has all columns, and for GPUs those of nvidia-smi; ECC is the number of memory errors
that could not be corrected. NO_COLOR turns colours off.

With --cluster a Kubernetes cluster is listed instead, and there are other flags:
'divvy ls --cluster --help' lists them.`,
		Example: `  divvy ls
  divvy ls -o wide
  divvy ls --user alice --sort used
  divvy ls --gpu 0 --watch=5s
  divvy ls --cluster
  divvy ls -o json | jq '.agents[].tenants[].name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("watch") && f.watch < leastInterval {
				return usage(fmt.Errorf("--watch=%s: give at least %s", f.watch, leastInterval))
			}
			collectSeldom()
			return a.list(cmd.Context(), f)
		},
	}
	addMachine(command, &f.machine)
	addFormat(command, &f.output, string(wide))
	f.add(command, "as they began")
	command.Flags().Bool("cluster", false, "list a Kubernetes cluster")
	command.Flags().DurationVarP(&f.watch, "watch", "w", 0, "show the list again and again, at this `INTERVAL`, until Ctrl-C")
	command.Flags().Lookup("watch").NoOptDefVal = "1s"
	return command
}

// collectSeldom lets garbage grow to some MiB before it is collected: what agents tell of hundreds of shares is shown and forgotten,
// and to look for what is still used of it meanwhile takes a tenth of the time.
func collectSeldom() { debug.SetGCPercent(400) }

// leastInterval is the shortest time between two lists.
const leastInterval = 100 * time.Millisecond

// list shows what there is, once or at intervals.
func (a *app) list(ctx context.Context, f *listFlags) error {
	asked := a.drivers()
	defer asked.close()
	again := f.watch > 0
	for {
		err := a.listOnce(ctx, asked, f, again)
		switch {
		case !again:
			return err
		case err != nil && !errors.Is(err, program.ErrReported):
			return unlessDone(ctx, err)
		}
		select {
		case <-time.After(f.watch):
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *app) listOnce(ctx context.Context, asked *drivers, f *listFlags, again bool) error {
	all, err := asked.survey(ctx, f.machine)
	if err != nil {
		return err
	}
	if err := f.choose(&all); err != nil {
		return err
	}
	if all.isEmpty() {
		if in := a.lookInside(ctx); in != nil && in.isRemote() {
			all.apart = in.name
		}
	}
	var text bytes.Buffer
	if again && f.output != "json" {
		text.WriteString(a.separator(f.output))
	}
	err = f.output.print(&text, agents{all.agents, all.away, all.held, all.unserved, all.remote}, func(w *strings.Builder) { printSurvey(w, all, a.style(f.output == wide)) })
	if err != nil {
		return err
	}
	if _, err := a.out.Write(text.Bytes()); err != nil {
		return fmt.Errorf("show shares: %w", err)
	}
	if len(all.away) > 0 {
		return program.ErrReported
	}
	return nil
}

// separator is what comes before each of several lists: a terminal is cleared, and elsewhere the time is said.
func (a *app) separator(output format) string {
	switch {
	case output == "yaml":
		return "---\n"
	case program.IsTerminal(a.out):
		return program.ClearScreen
	}
	return time.Now().Format(time.RFC3339) + "\n"
}

// style is how tables look where they are written.
func (a *app) style(wide bool) look {
	return look{width: columns.WidthOf(a.out), wide: wide, paint: columns.PaintFor(a.out)}
}
