package program

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is the width of help.
const helpColumns = 100

// writeUsage writes how a command is used: with its subcommands in groups, and no line wider than helpColumns.
func writeUsage(command *cobra.Command) error {
	var w strings.Builder
	w.WriteString("Usage:\n")
	if command.Runnable() {
		w.WriteString("  " + command.UseLine() + "\n")
	}
	if command.HasAvailableSubCommands() {
		w.WriteString("  " + command.CommandPath() + " [command]\n")
	}
	if len(command.Aliases) > 0 {
		w.WriteString("\nAliases:\n  " + command.NameAndAliases() + "\n")
	}
	if command.HasExample() {
		w.WriteString("\nExamples:\n" + named(command.Example) + "\n")
	}
	writeCommands(&w, command)
	writeFlags(&w, "Flags", command.LocalFlags())
	writeFlags(&w, "Global Flags", command.InheritedFlags())
	if command.HasAvailableSubCommands() {
		fmt.Fprintf(&w, "\nUse \"%s [command] --help\" for more information about a command.\n", command.CommandPath())
	}
	_, err := io.WriteString(command.OutOrStderr(), w.String())
	return err
}

// writeCommands writes the subcommands, by group where there are groups.
func writeCommands(w *strings.Builder, command *cobra.Command) {
	if !command.HasAvailableSubCommands() {
		return
	}
	groups := slices.Clone(command.Groups())
	rest := "Other Commands"
	if len(groups) == 0 {
		rest = "Available Commands"
	}
	for _, group := range append(groups, &cobra.Group{Title: rest}) {
		title := "\n" + group.Title + ":\n"
		for _, c := range command.Commands() {
			if c.GroupID != group.ID || !c.IsAvailableCommand() && c.Name() != "help" {
				continue
			}
			w.WriteString(title)
			title = ""
			fmt.Fprintf(w, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
		}
	}
}

func writeFlags(w *strings.Builder, title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		w.WriteString("\n" + title + ":\n" + strings.TrimRight(flags.FlagUsagesWrapped(helpColumns), " \n") + "\n")
	}
}
