package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// completionTime is how long the shell waits for names.
const completionTime = 2 * time.Second

// completer is a function with which the shell completes an argument or the value of a flag.
type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// offering offers what a survey has, each once. Agents that do not answer offer nothing.
func (a *app) offering(names func(survey) []string) completer {
	return func(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		parent := command.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completionTime)
		defer cancel()
		asked := a.drivers()
		defer asked.close()
		all, err := asked.survey(ctx, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found := names(all)
		slices.Sort(found)
		found = slices.DeleteFunc(slices.Compact(found), func(name string) bool {
			word, _, _ := strings.Cut(name, "\t")
			return !strings.HasPrefix(word, typed) || slices.Contains(args, word)
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// shareNames are those of shares, with what they run.
func shareNames(all survey) (names []string) {
	for _, l := range all.agents {
		for _, t := range l.Tenants {
			names = append(names, t.Name+"\tof "+t.User)
		}
	}
	return names
}

// claimNames are those of devices that virtual machines have, with how.
func claimNames(all survey) []string {
	return claimsThat(all, func(control.DeviceClaim) bool { return true })
}

// ownClaimNames are those that a command may release: a cluster releases its own.
func ownClaimNames(all survey) []string {
	return claimsThat(all, func(c control.DeviceClaim) bool { return c.Cluster == "" })
}

func claimsThat(all survey, are func(control.DeviceClaim) bool) (names []string) {
	for _, l := range all.agents {
		for _, c := range l.Devices {
			if are(c) {
				names = append(names, text.Plain(c.Name, 128)+"\t"+formOf(c)+" of "+orDash(text.Plain(c.User, 64)))
			}
		}
	}
	return names
}

// likeNames offers claims, and files where no claim begins as what was typed.
func (a *app) likeNames(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, directive := a.offering(claimNames)(command, args, typed)
	if len(names) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names, directive
}

// indexNames are indexes of GPUs, with their models.
func indexNames(all survey) (names []string) {
	for _, l := range all.agents {
		for _, g := range l.GPUs {
			names = append(names, strconv.Itoa(g.Index)+"\t"+g.Name)
		}
	}
	for _, u := range all.unserved {
		for _, g := range u.GPUs {
			names = append(names, strconv.Itoa(g.Index)+"\t"+g.Name)
		}
	}
	return names
}

// userNames are those of who has shares.
func userNames(all survey) (names []string) {
	for _, l := range all.agents {
		for _, t := range l.Tenants {
			names = append(names, t.User)
		}
	}
	return names
}

// completeAll has the shell offer shares, GPUs, users and words wherever commands below this one take them.
func (a *app) completeAll(root *cobra.Command) {
	words := map[string][]string{
		"policy": {"fixed", "weighted", "burst"}, "class": {"online", "offline"}, "layer": {"auto", "namespace", "env"},
		"backend": {"auto", "slice", "timeslice", "mps", "mig", "remote"}, "isolate": {"faults", "memory", "bandwidth", "none"},
	}
	a.completeBelow(root, words, map[string]completer{"gpu": a.offering(indexNames), "user": a.offering(userNames), "simgpu": a.simgpuNames})
}

// simgpuNames offers simulated machines: those that can be started, and the user's own. A file of one is offered where no name
// begins as what was typed.
func (a *app) simgpuNames(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	names := simgpu.Names()
	if instances, err := a.simgpus().List(); err == nil {
		for _, instance := range instances {
			names = append(names, instance.Name)
		}
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return !strings.HasPrefix(name, typed) })
	if len(names) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeBelow(parent *cobra.Command, words map[string][]string, found map[string]completer) {
	for _, command := range parent.Commands() {
		a.completeBelow(command, words, found)
		for flag, known := range words {
			if command.Flags().Lookup(flag) != nil {
				complete(command, flag, known...)
			}
		}
		for flag, names := range found {
			if command.Flags().Lookup(flag) != nil {
				_ = command.RegisterFlagCompletionFunc(flag, names) // the flag is there
			}
		}
		if slices.Contains([]string{"divvy set", "divvy stop", "divvy show", "divvy share rm"}, command.CommandPath()) {
			command.ValidArgsFunction = a.offering(shareNames)
		}
	}
}
