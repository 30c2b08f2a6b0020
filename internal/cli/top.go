package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/cli/top"
)

// topFlags are the flags of `divvy top`.
type topFlags struct {
	machine  string
	output   string
	interval time.Duration
	count    int
	once     bool
	selection
}

func newTop(a *app) *cobra.Command {
	f := &topFlags{output: "screen"}
	command := &cobra.Command{
		Use:   "top",
		Short: "Follow GPUs and shares on the screen",
		Long: `Follow GPUs and their shares: for each GPU a bar of its shares for memory and one
for time, of each share what it uses and what it is entitled to, and a line of how
busy the GPU was lately. Keys select, sort, filter and stop shares; ? lists them.

With --once, and where the output is no terminal, the same is printed as text, each
time after the moment. With -o json each line is what ` + "`divvy ls -o json`" + ` shows.`,
		Example: `  divvy top
  divvy top --user alice --sort time
  divvy top --once
  divvy top --interval 5s --count 12 > shares.log
  divvy top -o json | jq '.agents[].gpus[].reading.utilisation'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.interval < leastInterval:
				return usage(fmt.Errorf("--interval %s: give at least %s", f.interval, leastInterval))
			case f.count < 0:
				return usage(fmt.Errorf("--count %d: give a number of 0 or more; 0 is until Ctrl-C", f.count))
			case f.once && f.count > 1:
				return usage(errors.New("give either --once or --count"))
			case f.once:
				f.count = 1
			}
			collectSeldom()
			return a.top(cmd.Context(), f)
		},
	}
	flags := command.Flags()
	flags.DurationVar(&f.interval, "interval", time.Second, "time between two looks")
	flags.IntVar(&f.count, "count", 0, "number of looks (default: until Ctrl-C)")
	flags.BoolVar(&f.once, "once", false, "print one look and end")
	forms := []string{"screen", "json"}
	flags.VarP(choice{&f.output, "FORMAT", forms}, "output", "o", alternatives(forms))
	complete(command, "output", forms...)
	f.add(command, "gpu")
	addMachine(command, &f.machine)
	return command
}

func (a *app) top(ctx context.Context, f *topFlags) error {
	asked := a.drivers()
	defer asked.close()
	look := func(ctx context.Context) (survey, error) {
		all, err := asked.survey(ctx, f.machine)
		if err == nil {
			err = f.choose(&all)
		}
		return all, err
	}
	if f.output == "screen" && !f.once && a.interactive() {
		return a.screen(ctx, f, look)
	}
	return a.topAsText(ctx, f, look)
}

// interactive reports whether somebody sits before a screen that can be drawn on.
func (a *app) interactive() bool {
	return columns.WidthOf(a.out) > 0 && program.IsTerminal(os.Stdin) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// topAsText prints each look, after its time.
func (a *app) topAsText(ctx context.Context, f *topFlags, look func(context.Context) (survey, error)) error {
	model := top.New(columns.WidthOf(a.out), 0, f.interval).Plain().Ordered(top.Order(f.sort))
	for n := 1; ; n++ {
		all, err := look(ctx)
		if err != nil {
			return unlessDone(ctx, err)
		}
		var text bytes.Buffer
		if f.output == "json" {
			document := struct {
				Time time.Time `json:"time"`
				agents
			}{time.Now(), agents{all.agents, all.away, all.held, all.unserved, all.remote}}
			if err := writeJSON(&text, document, ""); err != nil {
				return err
			}
		} else {
			model, _ = model.Update(snapshotOf(all, time.Now()))
			if f.count != 1 {
				text.WriteString(time.Now().Format(time.RFC3339) + "\n")
			}
			text.WriteString(model.View() + "\n")
		}
		if _, err := a.out.Write(text.Bytes()); err != nil {
			return fmt.Errorf("show shares: %w", err)
		}
		if n == f.count {
			if len(all.away) > 0 {
				return program.ErrReported // as a list of what there is not
			}
			return nil
		}
		select {
		case <-time.After(f.interval):
		case <-ctx.Done():
			return nil
		}
	}
}

// unlessDone is an error, but for one that comes of Ctrl-C, with which somebody ends what has no other end.
func unlessDone(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// screen draws until somebody quits.
func (a *app) screen(ctx context.Context, f *topFlags, look func(context.Context) (survey, error)) error {
	s := &screen{app: a, flags: f, look: look, model: top.New(columns.WidthOf(a.out), 24, f.interval).Ordered(top.Order(f.sort))}
	s.ctx = ctx
	_, err := tea.NewProgram(s, tea.WithContext(ctx), tea.WithOutput(a.out), tea.WithFPS(drawnPerSecond)).Run()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		err = nil // it was Ctrl-C or a signal
	}
	if err != nil {
		return fmt.Errorf("show shares: %w", err)
	}
	return nil
}

// drawnPerSecond bounds how often the screen is drawn.
const drawnPerSecond = 10

// screen is the model on a terminal.
type screen struct {
	ctx   context.Context //nolint:containedctx // the terminal's program has no other way to hand it to commands
	app   *app
	flags *topFlags
	look  func(context.Context) (survey, error)
	model top.Model
	looks int
	// drawn is what model shows, unless it has changed since.
	drawn   string
	changed bool
}

// due says that it is time for the next look.
type due struct{}

// Init implements [tea.Model].
func (s *screen) Init() tea.Cmd { return s.snapshot }

// snapshot looks once.
func (s *screen) snapshot() tea.Msg {
	all, err := s.look(s.ctx)
	if err != nil {
		return top.Snapshot{Fault: err.Error()}
	}
	return snapshotOf(all, time.Now())
}

// Update implements [tea.Model].
func (s *screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	var news any = message
	var then tea.Cmd
	switch message := message.(type) {
	case due:
		return s, s.snapshot // nothing changes on the screen before the answer is there
	case top.Snapshot:
		if s.looks++; s.looks == s.flags.count {
			return s, tea.Quit
		}
		then = tea.Tick(s.flags.interval, func(time.Time) tea.Msg { return due{} })
	case tea.WindowSizeMsg:
		news = top.Size{Width: message.Width, Height: message.Height}
	case tea.KeyPressMsg:
		news = top.Key(message.String())
	}
	var effect top.Effect
	s.model, effect = s.model.Update(news)
	s.changed = true
	switch {
	case effect.Quit:
		return s, tea.Quit
	case effect.Stop != "":
		return s, s.stop(effect.Stop)
	}
	return s, then
}

// stop ends a share, while the screen goes on.
func (s *screen) stop(tenant string) tea.Cmd {
	return func() tea.Msg {
		if err := s.app.stop(s.ctx, s.flags.machine, control.StopParams{Tenant: tenant, Grace: usualGrace}); err != nil {
			return top.Done(err.Error())
		}
		return top.Done("stopped")
	}
}

// View implements [tea.Model].
func (s *screen) View() tea.View {
	if s.changed || s.drawn == "" {
		s.drawn, s.changed = s.model.View(), false
	}
	v := tea.NewView(s.drawn)
	v.AltScreen = true
	v.WindowTitle = strings.TrimSpace("divvy top " + s.flags.machine)
	return v
}
