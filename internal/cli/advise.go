package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/advice"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/history"
)

// advised is the document that `divvy advise -o json` prints.
type advised struct {
	// From and To are the time of which there are records.
	From      time.Time         `json:"from"`
	To        time.Time         `json:"to"`
	Proposals []advice.Proposal `json:"proposals"`
	// Granted is the replay with what was granted, Proposed that with the proposals.
	Granted  advice.Outcome `json:"granted"`
	Proposed advice.Outcome `json:"proposed"`
	// Faults say what could not be read.
	Faults []string `json:"faults,omitempty"`
}

// adviseFlags are the flags of `divvy advise`.
type adviseFlags struct {
	machine, user string
	since         since
	output        format
}

func newAdvise(a *app) *cobra.Command {
	f := &adviseFlags{since: since{text: "30d"}}
	command := &cobra.Command{
		Use:   "advise [FILE...]",
		Short: "Propose memory and cores for commands from their history",
		Long: `Propose memory and cores for each command of a user, or for each name of a share where
the command is not known, from what 'divvy history' has.
Then run all shares once more through the allocator, with the arrivals and ends that
they had: how many GPUs were needed at once with what was granted, how many with the
proposals, and how many would be free as a whole.

MEMORY is the peak and a margin of 10%, at least 512 MiB, for what the driver and
frameworks take from run to run; never less than the peak, nor than what was granted
where allocations were refused. WANTED is the GPU time that was used, and waited for while
the share was held back, in 95% of the time no more. CORES suffice for that; weighted shares
get none, unless they had less than a quarter of what they wanted. SURE says how much is
known: "much" from five runs and twenty hours on, "some" from two runs and two hours on.

With files, which 'divvy history -o json' of each machine of a cluster has written, the
shares of all of them are placed on the machines that these name.`,
		Example: `  divvy advise
  divvy advise --since 90d --user alice
  divvy history --since 30d -o json > node1.json
  divvy advise node1.json node2.json`,
		RunE: func(cmd *cobra.Command, files []string) error { return a.advise(cmd.Context(), f, files) },
	}
	addMachine(command, &f.machine)
	flags := command.Flags()
	flags.Var(&f.since, "since", "from when on: a `TIME` ago such as 36h or 90d, or a date such as 2026-11-01")
	flags.StringVar(&f.user, "user", "", "only the proposals for `USER`; the replay has all shares")
	addFormat(command, &f.output)
	return command
}

func (a *app) advise(ctx context.Context, f *adviseFlags, files []string) error {
	from, err := f.since.from(time.Now())
	if err != nil {
		return usage(err)
	}
	found := past{}
	if len(files) == 0 {
		found, err = a.past(ctx, f.machine, from)
	} else {
		found.Records, found.Faults, err = readHistories(files, from)
	}
	if err != nil {
		return err
	}
	told, err := adviceFrom(ctx, found)
	if err != nil {
		return err
	}
	if f.user != "" {
		told.Proposals = slices.DeleteFunc(told.Proposals, func(p advice.Proposal) bool { return p.Owner != f.user })
	}
	for _, fault := range told.Faults {
		say(a.err, "divvy: %s", text.Plain(fault, longestNote))
	}
	return f.output.print(a.out, told, func(w *strings.Builder) { printAdvice(w, told, a.style(false)) })
}

// adviceFrom is what follows from records.
func adviceFrom(ctx context.Context, found past) (told advised, err error) {
	told.Faults = found.Faults
	for i := range found.Records {
		r := &found.Records[i]
		if r.Kind == history.KindNode {
			continue
		}
		if told.From.IsZero() || r.From.Before(told.From) {
			told.From = r.From
		}
		if r.At.After(told.To) {
			told.To = r.At
		}
	}
	told.Proposals = advice.Propose(found.Records)
	if told.Granted, err = advice.Replay(ctx, found.Records, nil); err != nil {
		return told, err
	}
	told.Proposed, err = advice.Replay(ctx, found.Records, told.Proposals)
	return told, err
}

// mostOfHistory bounds a file that is read.
const mostOfHistory = 256 << 20

// readHistories reads the records of files, from a moment on.
func readHistories(files []string, from time.Time) (records []history.Record, faults []string, err error) {
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, nil, fmt.Errorf("read a history, %s: %w", text.Plain(name, longestName), unnamed(err))
		}
		told, bad, err := readHistory(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", text.Plain(name, longestName), unnamed(err))
		}
		if bad > 0 {
			faults = append(faults, fmt.Sprintf("%s has %d records that are none", name, bad))
		}
		for i := range told {
			if told[i].Kind == history.KindNode || told[i].At.After(from) {
				records = append(records, told[i])
			}
		}
	}
	return records, faults, nil
}

// unnamed is the error of a file without its name, which may be anything.
func unnamed(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}

// errNoHistory is what is said of another file.
var errNoHistory = errors.New("it is not what `divvy history -o json` writes")

// readHistory reads what `divvy history -o json` wrote. Bad counts what is no record.
func readHistory(in io.Reader) (records []history.Record, bad int, err error) {
	limited := &io.LimitedReader{R: in, N: mostOfHistory + 1}
	var told struct {
		Records []json.RawMessage `json:"records"`
	}
	err = json.NewDecoder(limited).Decode(&told)
	switch {
	case limited.N <= 0:
		return nil, 0, fmt.Errorf("it has more than %d MiB: give --since to `divvy history`", mostOfHistory>>20)
	case err != nil || told.Records == nil:
		return nil, 0, errNoHistory
	}
	for _, one := range told.Records {
		record, err := history.Decode(one)
		if err != nil {
			bad++
			continue
		}
		records = append(records, record)
	}
	return records, bad, nil
}

func printAdvice(w *strings.Builder, told advised, as look) {
	if len(told.Proposals) == 0 {
		w.WriteString("Nothing is known of a share from which a proposal follows.\n")
		return
	}
	if g, p := told.Granted, told.Proposed; p.Needed > g.Needed || p.Unplaced > g.Unplaced {
		fmt.Fprintln(w, as.note(fmt.Sprintf("! These proposals need more than was granted: %s", more(g, p))))
		w.WriteByte('\n')
	}
	t := columns.Table{Most: columns.MostOfName, Elastic: "COMMAND", Paint: as.paint}
	t.Row("USER", "COMMAND", "RUNS", "HOURS", "PEAK", "GRANTED", "MEMORY", "WANTED", "HAD-CORES", "CORES", "SURE")
	for i := range told.Proposals {
		p := &told.Proposals[i]
		wanted := "-"
		if p.Wanted != nil {
			wanted = tenth(*p.Wanted)
		}
		t.Row(p.Owner, p.What, strconv.Itoa(p.Runs), strconv.FormatFloat(p.Hours, 'f', 1, 64), size(p.Peak), size(p.Granted), size(p.Memory), wanted, percent(p.GrantedCores), percent(p.Cores), string(p.Sure))
	}
	t.Show(w, as.width, "HOURS", "HAD-CORES", "RUNS")
	w.WriteByte('\n')
	for i := range told.Proposals {
		p := &told.Proposals[i]
		for _, note := range p.Notes {
			fmt.Fprintln(w, as.note(fmt.Sprintf("%s of %s: %s.", p.What, p.Owner, note)))
		}
	}
	printOutcomes(w, told)
}

// more says what proposals need beyond what was granted.
func more(granted, proposed advice.Outcome) string {
	if proposed.Needed > granted.Needed {
		return fmt.Sprintf("%s at once in place of %d.", number(proposed.Needed, "GPU"), granted.Needed)
	}
	return fmt.Sprintf("%s would find no place at once, in place of %d.", number(proposed.Unplaced, "share"), granted.Unplaced)
}

// printOutcomes says what the replays found.
func printOutcomes(w *strings.Builder, told advised) {
	g, p := told.Granted, told.Proposed
	const day = "2 January 2006"
	fmt.Fprintf(w, "Replayed with their arrivals and ends: %s from %s to %s, on %s of %s.\n", number(g.Shares, "share"), told.From.Local().Format(day), told.To.Local().Format(day),
		number(g.GPUs, "GPU"), number(g.Machines, "machine"))
	fmt.Fprintf(w, "As granted, %s had a share at once at the most, and %d were free as a whole.\n", number(g.Needed, "GPU"), g.Free)
	fmt.Fprintf(w, "With the proposals it would be %d, and %d would be free as a whole.\n", p.Needed, p.Free)
	printUnplaced(w, "As granted", g.Unplaced)
	printUnplaced(w, "With the proposals", p.Unplaced)
}

// printUnplaced says how many shares found no place in a replay.
func printUnplaced(w *strings.Builder, how string, n int) {
	if n > 0 {
		fmt.Fprintf(w, "%s, %s found no place at once, because GPUs were overcommitted or shares lay otherwise.\n", how, number(n, "share"))
	}
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
