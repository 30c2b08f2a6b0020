package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/cli/text"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const gib = 1 << 30

// lab is a machine with two GPUs and four shares, after so many seconds.
func lab(seconds int) Snapshot {
	at := time.Date(2026, 3, 1, 12, 30, seconds, 0, time.UTC)
	wave := float64(10 + 80*(seconds%5)/4)
	return Snapshot{
		At: at,
		GPUs: []GPU{
			{Key: "a", Index: 0, Model: "A100-SXM4-80GB", Capacity: 80 * gib, Used: new(uint64(31 * gib)), Utilisation: new(int(wave)), Celsius: new(64), Watts: new(312), Served: true},
			{Key: "b", Index: 1, Model: "A100-SXM4-80GB", Capacity: 80 * gib, Served: true},
		},
		Shares: []Share{
			{Tenant: "1", GPU: "a", Name: "train", User: "alice", Command: "python train.py --epochs 90", State: "active", Limit: 40 * gib, Used: 28 * gib, Entitled: 50, Time: &wave, Age: 3 * time.Hour,
				Details: func() []string {
					return []string{"share train of alice", "GPU 0: 28Gi of 40Gi", "python train.py --epochs 90"}
				}},
			{Tenant: "2", GPU: "a", Name: "notebook", User: "bob", Command: "jupyter lab", State: "held back", Limit: 8 * gib, Used: 2 * gib, Entitled: 20, Time: new(20.0), HeldBack: 37, Refused: 12, Age: 90 * time.Second},
			{Tenant: "2", GPU: "b", Name: "notebook", User: "bob", Command: "jupyter lab", State: "idle", Limit: 8 * gib, Entitled: 20, Age: 90 * time.Second},
			{Tenant: "3", GPU: "b", Name: "batch", User: "carol", Command: "make all", State: "over", Limit: 96 * gib, Used: 97 * gib, Entitled: 100, Time: new(0.0), Age: 50 * time.Hour},
		},
		Notes: []string{"! GPU 1 is over-granted: its shares have 104Gi of its 80Gi"},
	}
}

func fed(width, height int) Model {
	m := New(width, height, time.Second)
	for second := range 8 {
		m, _ = m.Update(lab(second))
	}
	return m
}

func press(m Model, keys ...Key) (Model, Effect) {
	var effect Effect
	for _, key := range keys {
		m, effect = m.Update(key)
	}
	return m, effect
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", path, got)
	}
}

// fits finds that a view has exactly the screen's rows and no more than its columns.
func fits(t *testing.T, m Model) {
	t.Helper()
	rows := strings.Split(bare(m), "\n")
	if len(rows) != m.height && m.height >= leastHeight && m.width >= leastWidth {
		t.Errorf("%d rows of %d", len(rows), m.height)
	}
	for _, row := range rows {
		if text.Width(row) > m.width {
			t.Errorf("%d columns of %d: %q", text.Width(row), m.width, row)
		}
	}
}

// bare is the screen without colours.
func bare(m Model) string {
	m.plain = true
	return m.View()
}

func TestView(t *testing.T) {
	time.Local = time.UTC
	for _, size := range []Size{{40, 10}, {40, 24}, {80, 24}, {160, 24}} {
		m := fed(size.Width, size.Height)
		fits(t, m)
		golden(t, fmt.Sprintf("%dx%d", size.Width, size.Height), bare(m)+"\n")
	}
	for name, m := range map[string]Model{"help-40x10": fed(40, 10), "stop-20x5": fed(20, 5), "stop-40x10": fed(40, 10)} {
		pressed, _ := press(m, "down", map[bool]Key{true: "?", false: "x"}[name == "help-40x10"])
		fits(t, pressed)
		golden(t, name, bare(pressed)+"\n")
	}
	m := fed(80, 16)
	for name, keys := range map[string][]Key{
		"help": {"?"}, "details": {"enter"}, "stop": {"down", "x"}, "filter": {"/", "b", "o"}, "filtered": {"/", "b", "o", "b", "enter"}, "none": {"/", "z", "enter"},
		"sorted": {"s"}, "last": {"end"},
	} {
		pressed, _ := press(m, keys...)
		fits(t, pressed)
		golden(t, name, bare(pressed)+"\n")
	}
	golden(t, "colours", m.View()+"\n")
	golden(t, "once", fed(0, 0).Plain().View()+"\n")
	empty, _ := New(80, 8, time.Second).Update(Snapshot{At: lab(0).At})
	golden(t, "empty", bare(empty)+"\n")
	unserved, _ := New(80, 8, time.Second).Update(Snapshot{At: lab(0).At, GPUs: []GPU{{Key: "c", Machine: "t4", Model: "Tesla T4", Capacity: 15 * gib, Used: new(uint64(5 * gib)), Utilisation: new(0)}}})
	golden(t, "unserved", bare(unserved)+"\n")
}

// Keys do what help says.
func TestKeys(t *testing.T) {
	m := fed(80, 24)
	for _, test := range []struct {
		keys []Key
		want string
		Effect
	}{
		{nil, "train@a", Effect{}},
		{[]Key{"down", "j"}, "notebook@b", Effect{}},
		{[]Key{"down", "up", "k"}, "train@a", Effect{}},
		{[]Key{"pgdown"}, "batch@b", Effect{}},
		{[]Key{"end", "home"}, "train@a", Effect{}},
		{[]Key{"q"}, "train@a", Effect{Quit: true}},
		{[]Key{"?", "q"}, "train@a", Effect{Quit: true}},
		{[]Key{"/", "q", "ctrl+c"}, "train@a", Effect{Quit: true}},
		{[]Key{"x", "y"}, "train@a", Effect{Stop: "1"}},
		{[]Key{"x", "enter"}, "train@a", Effect{}},
		{[]Key{"x", "Y"}, "train@a", Effect{}},
		{[]Key{"/", "c", "a", "r", "enter", "x", "y"}, "batch@b", Effect{Stop: "3"}},
		{[]Key{"/", "b", "x", "backspace", "enter"}, "notebook@a", Effect{}},
		{[]Key{"/", "c", "esc"}, "train@a", Effect{}},
		{[]Key{"/", "z", "z", "enter", "x", "y"}, "", Effect{}},
		{[]Key{"s", "s", "home"}, "batch@b", Effect{}},
	} {
		got, effect := press(m, test.keys...)
		share, _ := got.current()
		at := share.Name + "@" + share.GPU
		if share.Tenant == "" {
			at = ""
		}
		if at != test.want || effect != test.Effect {
			t.Errorf("%q: selects %q, %+v; want %q, %+v", test.keys, at, effect, test.want, test.Effect)
		}
	}
}

// A paused screen stays, and a failure leaves what was known.
func TestPauseAndFault(t *testing.T) {
	m, _ := press(fed(80, 24), "p")
	later, _ := m.Update(lab(30))
	if strings.Contains(bare(later), "12:30:30") || !strings.Contains(bare(later), "PAUSED") {
		t.Errorf("paused:\n%s", bare(later))
	}
	later, _ = press(later, "p")
	later, _ = later.Update(lab(31))
	if !strings.Contains(bare(later), "12:30:31") {
		t.Errorf("goes on:\n%s", bare(later))
	}
	failed, _ := later.Update(Snapshot{Fault: "the agent is away"})
	if said := bare(failed); !strings.Contains(said, "! the agent is away") || !strings.Contains(said, "notebook") {
		t.Errorf("failed:\n%s", said)
	}
	away, _ := later.Update(Snapshot{At: lab(0).At, Notes: []string{"! the agent is away"}})
	if said := bare(away); !strings.Contains(said, "! the agent is away") || strings.Contains(said, "No GPUs") {
		t.Errorf("without an agent:\n%s", said)
	}
	ended, _ := later.Update(Snapshot{At: lab(0).At, GPUs: lab(0).GPUs})
	if _, ok := ended.current(); ok || strings.Contains(bare(ended), "notebook") {
		t.Errorf("all ended:\n%s", bare(ended))
	}
}

// Details are made of no share but the one that is asked about.
func TestDetailsOfOneShare(t *testing.T) {
	found, asked := lab(0), map[string]bool{}
	for i := range found.Shares {
		name := found.Shares[i].Name
		found.Shares[i].Details = func() []string { asked[name] = true; return nil }
	}
	m, _ := New(80, 24, time.Second).Update(found)
	_ = m.View()
	if len(asked) > 0 {
		t.Errorf("the list asks for details of %v", asked)
	}
	m, _ = press(m, "enter")
	_ = m.View()
	if share, _ := m.current(); len(asked) != 1 || !asked[share.Name] {
		t.Errorf("details of %v were asked for, not of %s alone", asked, share.Name)
	}
}

// Whatever others name and however small the screen is, it keeps its size and shows no control characters.
func TestHostileNames(t *testing.T) {
	hostile := "\x1b]0;owned\x07\x1b[2J\r\n\xff\u202e漢字" + strings.Repeat("x", 1<<20)
	found := lab(0)
	for i := range found.Shares {
		s := &found.Shares[i]
		s.Name, s.User, s.Command, s.State, s.Details = hostile, hostile, hostile, hostile, func() []string { return []string{hostile} }
	}
	found.GPUs[0].Model, found.GPUs[0].Machine, found.Notes = hostile, hostile, []string{hostile}
	for _, width := range []int{0, 1, 2, 5, 19, 20, 21, 40, 60, 80, 119} {
		for _, height := range []int{0, 1, 2, 3, 10, 30} {
			m, _ := New(width, height, time.Second).Update(found)
			m, _ = m.Update(Done(hostile))
			for _, keys := range [][]Key{nil, {"enter"}, {"x"}, {"/", Key("\x1b"), Key(hostile), "enter"}, {"down", "pgdown", "s"}, {"?"}} {
				pressed, _ := press(m, keys...)
				if width > 0 {
					fits(t, pressed)
				}
				said := bare(pressed)
				if !utf8.ValidString(said) || strings.ContainsFunc(said, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == '\u202e' }) {
					t.Fatalf("%d×%d %q: %.200q", width, height, keys, said)
				}
			}
		}
	}
}

func TestBar(t *testing.T) {
	for _, test := range []struct {
		parts []part
		width int
		want  string
	}{
		{nil, 4, "····"},
		{[]part{{0.5, 0.25}}, 8, "██░░····"},
		{[]part{{0.5, 0.25}, {0.25, 0.5}}, 8, "██░░█+··"},
		{[]part{{1, 1}, {1, 0}}, 8, "████░░░░"},
		{[]part{{0.5, 0.001}}, 8, "█░░░····"},
		{[]part{{0, 0.5}}, 8, "········"},
		{[]part{{1, 2}}, 0, ""},
		{[]part{{1, 2}}, -3, ""},
	} {
		if got, _ := bar(test.parts, test.width); string(got) != test.want {
			t.Errorf("%v in %d: %q, want %q", test.parts, test.width, string(got), test.want)
		}
	}
	if got := spark([]float64{-5, 0, 50, 99, 100, 250}, 5); got != "▁▅███" {
		t.Errorf("got %s", got)
	}
}

// BenchmarkRefresh is one snapshot with 200 shares on 8 GPUs, drawn.
func BenchmarkRefresh(b *testing.B) {
	found := lab(0)
	for i := range 200 {
		s := found.Shares[i%4]
		s.Tenant = fmt.Sprint(i)
		found.Shares = append(found.Shares, s)
	}
	m := New(160, 50, time.Second)
	for b.Loop() {
		m, _ = m.Update(found)
		_ = m.View()
	}
}
