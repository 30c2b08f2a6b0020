package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// format is how a list is printed.
type format string

// Set implements pflag.Value.
func (f *format) Set(text string) error {
	if !slices.Contains([]string{"table", "json", "yaml"}, text) {
		return fmt.Errorf("use table, json or yaml")
	}
	*f = format(text)
	return nil
}

// Type implements pflag.Value.
func (f *format) Type() string { return "FORMAT" }

func (f *format) String() string { return string(*f) }

func addFormat(command *cobra.Command, f *format) {
	*f = "table"
	command.Flags().VarP(f, "output", "o", "table, json or yaml")
}

// print writes value as JSON or YAML, or the table.
func (f format) print(w io.Writer, value any, table func(*strings.Builder)) error {
	switch f {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(value)
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
}

func newList(a *app) *cobra.Command {
	var machine string
	var output format
	command := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List GPUs, shares and what they use",
		Long: `List GPUs, their shares and what these use, as the agents report it: the system's
agent or your own, and those of your simulated machines. While a system agent is
away, that is said, and the exit status is 1: its shares go on. GPUs that other
users' own agents hold are named with their holder.

USED is what the share's processes have by the driver's figures; where the driver
does not tell, it is what they say themselves, marked with a star. OVERHEAD, which
they say themselves, is the part of USED that the driver takes for itself: contexts and
modules. TIME is the part of the GPU's time that the share had in the last
second. CORES is what it is guaranteed; with policy fixed it is also the most it
gets. A share that is "held back" had to wait for GPU time lately. LAYER is what
stands between the tenant and the driver: "namespace" covers the driver's files,
"env" relies on LD_LIBRARY_PATH. POLICY, WEIGHT, CLASS and LAYER are left out where
all shares have the usual one, and on a narrow terminal first OVERHEAD, LAYER and PIDS;
UUIDs are shortened there to what --gpu and CUDA_VISIBLE_DEVICES need.`,
		Example: `  divvy ls
  divvy ls -o json | jq '.agents[].tenants[].name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.survey(cmd.Context(), machine)
			if err != nil {
				return err
			}
			err = output.print(a.out, agents{all.agents, all.away, all.held}, func(w *strings.Builder) { printSurvey(w, all, widthOf(a.out)) })
			if err == nil && len(all.away) > 0 {
				err = program.ErrReported
			}
			return err
		},
	}
	addMachine(command, &machine)
	addFormat(command, &output)
	return command
}

func newTop(a *app) *cobra.Command {
	var machine string
	var interval time.Duration
	var count int
	command := &cobra.Command{
		Use:   "top",
		Short: "Show the list at intervals",
		Long:  "Show what `divvy ls` shows, at intervals until Ctrl-C.",
		Example: `  divvy top
  divvy top --interval 5s --count 12 > shares.log`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond {
				return usage(fmt.Errorf("--interval %s: give at least 100ms", interval))
			}
			if count < 0 {
				return usage(fmt.Errorf("--count %d: give a number of 0 or more; 0 is until Ctrl-C", count))
			}
			return a.top(cmd.Context(), machine, interval, count)
		},
	}
	command.Flags().DurationVar(&interval, "interval", time.Second, "time between two lists")
	command.Flags().IntVar(&count, "count", 0, "number of lists (default: until Ctrl-C)")
	addMachine(command, &machine)
	return command
}

func (a *app) top(ctx context.Context, machine string, interval time.Duration, count int) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	clear := program.IsTerminal(a.out)
	for n := 1; ; n++ {
		all, err := a.survey(ctx, machine)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		var text strings.Builder
		if clear {
			text.WriteString(program.ClearScreen)
		}
		printSurvey(&text, all, widthOf(a.out))
		if _, err := io.WriteString(a.out, text.String()); err != nil {
			return fmt.Errorf("show shares: %w", err)
		}
		if n == count {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
