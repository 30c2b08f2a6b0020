package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/doctor/bundle"
	"github.com/divvy-gpu/divvy/internal/version"
)

// Bundle is the flag of commands that write a bundle.
type Bundle struct {
	wanted bool
	file   string
}

// Add defines the flag. The file may be an argument of its own.
func (b *Bundle) Add(command *cobra.Command) {
	command.Flags().BoolVar(&b.wanted, "bundle", false, "write what whoever is to help needs to know, without secrets, to a new file: FILE, or one named by the time")
	command.Use += " [--bundle [FILE]]"
	command.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case !b.wanted && len(args) > 0:
			return NoArgs(cmd, args)
		case len(args) > 1:
			return Usage(fmt.Errorf("unexpected argument %q: give one file", args[1]))
		case len(args) == 1 && (args[0] == "" || args[0] == "-" || strings.HasSuffix(args[0], "/")):
			return Usage(errors.New("--bundle writes to a file: give its name"))
		case len(args) == 1:
			b.file = args[0]
		}
		return nil
	}
}

// Wanted reports whether the flag was given.
func (b *Bundle) Wanted() bool { return b.wanted }

// Save collects items, writes them to the file and lists what is there.
func (b *Bundle) Save(ctx context.Context, out io.Writer, items []bundle.Item) error {
	file := b.file
	if file == "" {
		file = "divvy-bundle-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	items = append(items, bundle.Text("README.txt", "What `divvy doctor --bundle` of "+version.Full()+" collected. Secrets of known forms are replaced by [redacted];\n"+
		"names of users, of hosts, of files and of programs are here. Of long files the end is here.\n"), bundle.Text("version.txt", versionText()+"\n"))
	archive, listed, err := bundle.Collect(ctx, items)
	if err != nil {
		return err
	}
	if err := bundle.Save(file, archive); err != nil {
		return err
	}
	var text strings.Builder
	for _, one := range listed {
		note := ""
		if one.Missing != "" {
			note = "  (" + strings.ReplaceAll(one.Missing, "\n", " ") + ")"
		}
		fmt.Fprintf(&text, "%7d  %s%s\n", one.Bytes, one.Name, note)
	}
	fmt.Fprintf(&text, "%s has these files, only you can read it. It names users, hosts and programs.\nLook at it before you send it: tar -xzf %s\n", file, file)
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("list what is in %s: %w", file, err)
	}
	return nil
}
