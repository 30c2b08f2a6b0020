package top

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// server is a machine with eight GPUs and so many shares.
func server(width, height, shares int) Model {
	found := Snapshot{At: lab(0).At, Notes: []string{"! the last note"}}
	for i := range 8 {
		g := lab(0).GPUs[0]
		g.Key, g.Index = fmt.Sprint(i), i
		found.GPUs = append(found.GPUs, g)
	}
	for i := range shares {
		s := lab(0).Shares[0]
		s.Tenant, s.GPU, s.Name, s.Index = fmt.Sprint(i), fmt.Sprint(i%8), fmt.Sprintf("share%02d.", i), i%8
		s.Details = func() (lines []string) {
			for row := range 30 {
				lines = append(lines, fmt.Sprintf("detail%02d.", row))
			}
			return lines
		}
		found.Shares = append(found.Shares, s)
	}
	m, _ := New(width, height, time.Second).Update(found)
	return m
}

// On a server with eight GPUs the list is longer than a usual screen.
func TestScrolledView(t *testing.T) {
	time.Local = time.UTC
	for name, keys := range map[string][]Key{"server": nil, "server-home": {"home"}, "server-down": {"home", "pgdown"}, "server-end": {"end"}, "server-details": {"enter", "pgdown"}} {
		pressed, _ := press(server(80, 24, 20), keys...)
		fits(t, pressed)
		golden(t, name, bare(pressed)+"\n")
	}
	pressed, _ := press(server(40, 10, 20), "pgup")
	golden(t, "server-40x10", bare(pressed)+"\n")
}

var counted = regexp.MustCompile(`rows? (above|below)|[↑↓]\d`)

// From wherever the selected share is, each row comes on the screen by keys, up and down again; no screen begins amid a GPU, and
// what is not seen is told.
func TestEveryRowIsReached(t *testing.T) {
	for _, size := range []Size{{80, 24}, {40, 10}, {80, 5}, {80, 4}, {80, 3}, {160, 60}} {
		for _, keys := range [][]Key{{"pgup", "pgdown"}, {"up", "down"}} {
			m := server(size.Width, size.Height, 20)
			m, _ = press(m, "end")
			seen, all := map[int]bool{}, len(m.body())
			for row, l := range m.body() {
				seen[row] = l.text == "" && l.draw == nil // which says nothing
			}
			for _, key := range keys {
				steps := 0
				for before := -2; steps < 200; steps++ {
					body := m.body()
					from := m.begin(body)
					for row := from; row < min(from+m.room(), len(body)); row++ {
						seen[row] = true
					}
					if m.room() >= leastAligned && body[from].within {
						t.Fatalf("%v %s: begins amid a GPU:\n%s", size, key, bare(m))
					}
					if m.room() >= all == counted.MatchString(strings.Split(bare(m), "\n")[0]) {
						t.Fatalf("%v: %q", size, strings.Split(bare(m), "\n")[0])
					}
					at := from<<16 + m.at(m.shown())
					if at == before {
						break
					}
					before = at
					m, _ = press(m, key)
				}
				if steps == 200 {
					t.Errorf("%v: %s has no end", size, key)
				}
			}
			for row, ok := range seen {
				if !ok {
					t.Errorf("%v %s: row %d is not reached", size, keys, row)
				}
			}
			top, _ := press(m, "home")
			if top.begin(top.body()) != 0 {
				t.Errorf("%v: home is not the top:\n%s", size, bare(top))
			}
		}
	}
}

// What is selected stays on the screen where shares are.
func TestSelectionIsSeen(t *testing.T) {
	m := server(80, 24, 60)
	for _, key := range []Key{"pgdown", "pgdown", "pgdown", "down", "pgdown", "pgup", "up", "s", "end", "pgup", "p", "enter", "esc"} {
		m, _ = press(m, key)
		share, _ := m.current()
		if m.pane == paneList && !strings.Contains(bare(m), "> "+share.Name) {
			t.Fatalf("after %s:\n%s", key, bare(m))
		}
	}
}
