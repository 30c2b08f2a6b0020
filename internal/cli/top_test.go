package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/top"
)

// What top shows of a survey: every GPU and share, and what is wrong.
func TestSnapshot(t *testing.T) {
	time.Local = time.UTC
	all := survey{agents: example(), away: []absence{{Reason: "the agent is away"}}, unserved: []unserved{unservedExample()}}
	own := &all.agents[1].Tenants[0].Shares[0]
	own.Time.HeldBackPercent, own.Time.HeldBackTotal = 40, uint64(90*time.Minute)
	own.Refusals = &control.Refusals{Count: 3, ByGPU: 1, Largest: 5 << 30}
	m := top.New(140, 0, time.Second).Plain()
	m, _ = m.Update(snapshotOf(all, all.agents[1].Time))
	golden(t, "top.text", m.View()+"\n")
	found := snapshotOf(all, all.agents[1].Time)
	golden(t, "top-details.text", strings.Join(found.Shares[0].Details(), "\n")+"\n")
	var w strings.Builder
	printSurvey(&w, all, look{width: 110})
	golden(t, "ls-held.table", w.String())
}

// A share is entitled to what it is guaranteed, and weighted ones to their parts of the rest.
func TestEntitlements(t *testing.T) {
	share := func(gpu string, policy v1alpha1.Policy, class v1alpha1.Class, cores, weight int) control.Share {
		return control.Share{UUID: gpu, Policy: policy, Class: class, Cores: cores, Weight: weight}
	}
	for _, test := range []struct {
		shares []control.Share
		want   []float64
	}{
		{[]control.Share{share("a", v1alpha1.PolicyWeighted, v1alpha1.ClassOnline, 0, 1)}, []float64{100}},
		{[]control.Share{
			share("a", v1alpha1.PolicyFixed, v1alpha1.ClassOnline, 40, 1), share("a", v1alpha1.PolicyWeighted, v1alpha1.ClassOnline, 0, 1),
			share("a", v1alpha1.PolicyWeighted, v1alpha1.ClassOnline, 0, 2), share("a", v1alpha1.PolicyWeighted, v1alpha1.ClassOffline, 0, 5),
			share("b", v1alpha1.PolicyBurst, v1alpha1.ClassOnline, 30, 1),
		}, []float64{40, 20, 40, 0, 30}},
		{[]control.Share{share("a", v1alpha1.PolicyFixed, v1alpha1.ClassOnline, 120, 1), share("a", v1alpha1.PolicyWeighted, v1alpha1.ClassOnline, 0, 1)}, []float64{120, 0}},
	} {
		all := entitlements(control.Listing{Tenants: []control.Tenant{{ID: "t", Shares: test.shares}}})
		var got []float64
		for i := range test.shares {
			got = append(got, all[shareKey{"t", i}])
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v, want %v", test.shares, got, test.want)
		}
	}
}

// Where the output is no terminal, each look is printed after its time, or as a line of JSON.
func TestTopAsText(t *testing.T) {
	status, out, errOut := call(t, "top", "--count", "2", "--interval", "100ms")
	lines := strings.Split(out, "\n")
	if status != 0 || errOut != "" || strings.Count(out, "divvy top") != 2 {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	if _, err := time.Parse(time.RFC3339, lines[0]); err != nil {
		t.Errorf("no time: %q", lines[0])
	}
	if _, out, _ = call(t, "top", "--once"); strings.Count(out, "divvy top") != 1 || !strings.HasPrefix(out, "divvy top") {
		t.Errorf("once: %q", out)
	}
	status, out, _ = call(t, "top", "-o", "json", "--count", "2", "--interval", "100ms")
	documents := json.NewDecoder(strings.NewReader(out))
	for range 2 {
		var document struct {
			Time   time.Time `json:"time"`
			Agents []any     `json:"agents"`
		}
		if err := documents.Decode(&document); err != nil || document.Time.IsZero() || document.Agents == nil {
			t.Errorf("status %d: %v in %q", status, err, out)
		}
	}
	if strings.Count(out, "\n") != 2 {
		t.Errorf("not a line each: %q", out)
	}
}

// closed is an output that nobody reads any more.
type closed struct{ bytes.Buffer }

var errClosed = errors.New("broken pipe")

func (closed) Write([]byte) (int, error) { return 0, errClosed }

func TestClosedOutput(t *testing.T) {
	for _, args := range []string{"top", "top -o json", "ls", "ls --watch=100ms", "ls -o json"} {
		t.Run(args, func(t *testing.T) {
			t.Setenv("DIVVY_RUNDIR", t.TempDir())
			var errOut bytes.Buffer
			if status := Main(strings.Fields(args), closed{}, &errOut); status != 1 || !strings.Contains(errOut.String(), "broken pipe") {
				t.Errorf("status %d, %s", status, errOut.String())
			}
		})
	}
}

// The screen looks again after each look, does what keys say, and says what became of a stop.
func TestScreen(t *testing.T) {
	a := &app{rundir: t.TempDir()}
	s := &screen{
		ctx: t.Context(), app: a, flags: &topFlags{interval: time.Millisecond, count: 3}, model: top.New(80, 24, time.Second),
		look: func(context.Context) (survey, error) { return survey{agents: example()}, nil },
	}
	step := func(m tea.Msg) tea.Cmd {
		_, then := s.Update(m)
		return then
	}
	again := step(s.Init()())
	if _, ok := again().(due); !ok || !strings.Contains(s.View().Content, "train") || !s.View().AltScreen {
		t.Errorf("after a look:\n%s", s.View().Content)
	}
	step(tea.WindowSizeMsg{Width: 40, Height: 10})
	if rows := strings.Count(s.View().Content, "\n") + 1; rows != 10 {
		t.Errorf("%d rows of 10", rows)
	}
	step(tea.KeyPressMsg{Code: 'x', Text: "x"})
	stopped := step(tea.KeyPressMsg{Code: 'y', Text: "y"})
	if said, ok := stopped().(top.Done); !ok || !strings.Contains(string(said), "no such share") {
		t.Errorf("stop of a share that has ended: %v", said)
	}
	if quit := step(tea.KeyPressMsg{Code: 'q', Text: "q"}); quit == nil {
		t.Error("q does not quit")
	}
	s.look = func(context.Context) (survey, error) { return survey{}, errClosed }
	step(step(due{})())
	if shown := s.View().Content; !strings.Contains(shown, errClosed.Error()) || !strings.Contains(shown, "train") {
		t.Errorf("after a failure:\n%s", shown)
	}
	if quit := step(step(due{})()); quit == nil {
		t.Error("it goes on after the last look")
	} else if _, ok := quit().(tea.QuitMsg); !ok {
		t.Error("it does not quit after the last look")
	}
}

// The screen is drawn again when something has changed, and not because a look begins.
func TestScreenIsDrawnForNews(t *testing.T) {
	s := &screen{drawn: "as it was", flags: &topFlags{interval: time.Hour}}
	s.Update(due{})
	if got := s.View().Content; got != "as it was" {
		t.Errorf("drawn again before the answer: %q", got)
	}
	s.Update(top.Snapshot{})
	if got := s.View().Content; got == "as it was" {
		t.Error("not drawn with the answer")
	}
}
