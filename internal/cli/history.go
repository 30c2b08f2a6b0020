package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/history/store"
)

// past is the document that `divvy history -o json` prints.
type past struct {
	// Since is from when on records are in it.
	Since time.Time `json:"since"`
	// Rows are sums of the records, which are in the order of time, whichever agent wrote them.
	Rows    []history.Row    `json:"rows"`
	Records []history.Record `json:"records"`
	// Faults say what could not be read.
	Faults []string `json:"faults,omitempty"`
}

// historyFlags are the flags of `divvy history`.
type historyFlags struct {
	machine, user string
	since         since
	by            columnsFlag
	records       bool
	output        format
}

func newHistory(a *app) *cobra.Command {
	f := &historyFlags{by: columnsFlag{history.ByDay, history.ByUser}, since: since{text: "7d"}}
	command := &cobra.Command{
		Use:   "history",
		Short: "Show what shares did in the past",
		Long: `Show what shares did, as agents keep it: the system's agent of all users, your
own agent of your shares, also after it and the machine were started again. Without
flags it is the sum of the last seven days by day and user.

SHARES counts shares, one for each of their GPUs, and RUNNING those of them that had
not ended. TIME is for how long they were there together, GPU-TIME the time that they
had a GPU, ENTITLED what they had a right to, and HELD the time in which they were held
back. REFUSED counts allocations that were refused. GRANTED is the largest limit
of memory and PEAK the most that one used. A living share is counted up to the last
full hour. Of other users' commands you see the program alone.

--by share and --by command show one row for each name of a share, and for each program
with its script, of a user. --records shows each record, of an hour or of a share's
end. -o json has both, and -o csv is for spreadsheets.`,
		Example: `  divvy history
  divvy history --by share --since 24h
  divvy history --by user,gpu --since 2026-11-01 -o csv
  divvy history --user alice --records`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.history(cmd.Context(), f) },
	}
	addMachine(command, &f.machine)
	flags := command.Flags()
	flags.Var(&f.by, "by", "what rows are the sums of: "+alternatives(columnNames())+", or several with commas")
	complete(command, "by", columnNames()...)
	flags.Var(&f.since, "since", "from when on: a `TIME` ago such as 36h or 30d, or a date such as 2026-11-01")
	flags.StringVar(&f.user, "user", "", "only the shares of `USER`")
	flags.BoolVar(&f.records, "records", false, "show each record in place of sums")
	addFormat(command, &f.output, "csv")
	return command
}

func columnNames() (names []string) {
	for _, c := range history.Columns {
		names = append(names, string(c))
	}
	return names
}

// columnsFlag is a list of columns.
type columnsFlag []history.Column

// Set implements pflag.Value.
func (f *columnsFlag) Set(text string) error {
	var chosen columnsFlag
	for word := range strings.SplitSeq(text, ",") {
		c := history.Column(strings.TrimSpace(word))
		if !slices.Contains(history.Columns, c) {
			return errors.New("use " + alternatives(columnNames()))
		}
		if !slices.Contains(chosen, c) {
			chosen = append(chosen, c)
		}
	}
	*f = chosen
	return nil
}

// Type implements pflag.Value.
func (f *columnsFlag) Type() string { return "COLUMN" }

func (f *columnsFlag) String() string {
	var names []string
	for _, c := range *f {
		names = append(names, string(c))
	}
	return strings.Join(names, ",")
}

// all are the columns in order, with those without which one of them says nothing.
func (f *columnsFlag) all() (columns []history.Column) {
	named := slices.Contains(*f, history.ByShare) || slices.Contains(*f, history.ByCommand)
	for _, c := range history.Columns {
		if slices.Contains(*f, c) || c == history.ByUser && named {
			columns = append(columns, c)
		}
	}
	return columns
}

// since is a time ago, or a moment.
type since struct{ text string }

// Set implements pflag.Value.
func (s *since) Set(text string) error {
	one := since{text}
	if _, err := one.from(time.Now()); err != nil {
		return err
	}
	*s = one
	return nil
}

// Type implements pflag.Value.
func (s *since) Type() string { return "TIME" }

func (s *since) String() string { return s.text }

// from is the moment that is meant.
func (s *since) from(now time.Time) (time.Time, error) {
	const most = 20 * 365 // days
	if days, ok := strings.CutSuffix(s.text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil && n <= most {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if ago, err := time.ParseDuration(s.text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", time.RFC3339} {
		if at, err := time.ParseInLocation(layout, s.text, now.Location()); err == nil {
			return at, nil
		}
	}
	return time.Time{}, errors.New("give a time ago such as 36h or 30d, or a date such as 2026-11-01")
}

// history shows what shares did.
func (a *app) history(ctx context.Context, f *historyFlags) error {
	from, err := f.since.from(time.Now())
	if err != nil {
		return usage(err)
	}
	found, err := a.past(ctx, f.machine, from)
	if err != nil {
		return err
	}
	if f.user != "" {
		found.Records = slices.DeleteFunc(found.Records, func(r history.Record) bool { return r.Kind != history.KindNode && r.User != f.user })
	}
	by := f.by.all()
	found.Rows = history.Sum(found.Records, by, time.Local)
	for _, fault := range found.Faults {
		say(a.err, "divvy: %s", text.Plain(fault, longestNote))
	}
	if f.output == "csv" {
		return writeCSV(a.out, found, by, f.records)
	}
	return f.output.print(a.out, found, func(w *strings.Builder) { printHistory(w, found, by, f.records, a.style(false)) })
}

// past is what the agents keep, from a moment on. What an agent kept that does not run is read from its files, if they are this
// user's.
func (a *app) past(ctx context.Context, machine string, from time.Time) (past, error) {
	all := past{Since: from, Records: []history.Record{}}
	endpoints, err := a.endpoints(ctx, machine)
	if err != nil {
		return all, err
	}
	for _, name := range sortedKeys(endpoints) {
		if err := all.add(ctx, endpoints[name], from); err != nil {
			return all, err
		}
	}
	// Machines keep records of the time before, in the same file.
	all.Records = slices.DeleteFunc(all.Records, func(r history.Record) bool { return r.Kind != history.KindNode && !r.At.After(from) })
	history.Sort(all.Records)
	return all, nil
}

// add adds what the agent of an endpoint keeps, and what lies in files that it does not answer for.
func (p *past) add(ctx context.Context, endpoint control.Endpoint, from time.Time) error {
	own, system := placesOf(endpoint)
	dirs := []string{own}
	if os.Getuid() == 0 && system != own {
		dirs = append(dirs, system)
	}
	client, err := control.Find(ctx, endpoint)
	var away *control.AwayError
	switch {
	case errors.As(err, &away):
		if os.Getuid() != 0 {
			p.Faults = append(p.Faults, fmt.Sprintf("what the system's agent keeps cannot be told: %v", away))
		}
	case errors.Is(err, control.ErrNoAgent):
	case err != nil:
		return err
	default:
		answered, info := own, client.Info()
		if info.UID == 0 && !info.Ephemeral {
			answered = system
		}
		dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == answered })
		if err := errors.Join(p.ask(ctx, client, from), client.Close()); err != nil {
			return fmt.Errorf("ask for the history: %w", err)
		}
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if err := p.read(from, func(at store.Cursor) (store.Page, error) { return store.ReadDir(dir, at) }); err != nil {
			p.Faults = append(p.Faults, err.Error())
		}
	}
	return nil
}

// ask reads what an agent keeps.
func (p *past) ask(ctx context.Context, client *control.Client, from time.Time) error {
	off := false
	err := p.read(from, func(at store.Cursor) (store.Page, error) {
		page, err := client.History(ctx, control.HistoryParams{From: at})
		if err != nil {
			return store.Page{}, err
		}
		off = page.Off
		return page.Page, nil
	})
	if off {
		p.Faults = append(p.Faults, "the agent keeps no history: its configuration says so, or it knows no place for it")
	}
	return err
}

// placesOf are the folders of the histories of a user's own agent and of the system's.
func placesOf(e control.Endpoint) (own, system string) {
	if e.Simgpu != "" {
		own = store.Place(e.Dir(), true)
		return own, own
	}
	return store.Place(e.Rundir, false), store.Place(e.System().Rundir, false)
}

// read reads all pages from a moment on.
func (p *past) read(from time.Time, page func(store.Cursor) (store.Page, error)) error {
	// A record lies in the file of the day in which it begins.
	for at := (&store.Cursor{Day: from.UTC().AddDate(0, 0, -1).Format(time.DateOnly)}); at != nil; {
		one, err := page(*at)
		if err != nil {
			return err
		}
		p.Records = append(p.Records, one.Records...)
		p.Faults = append(p.Faults, one.Faults...)
		if one.Next != nil && *one.Next == *at {
			return errors.New("read the history: its pages do not end")
		}
		at = one.Next
	}
	return nil
}
