package process

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sluggish takes a while for each reading.
type sluggish struct {
	text io.Reader
	each time.Duration
}

func (s sluggish) Read(p []byte) (int, error) {
	time.Sleep(s.each)
	return s.text.Read(p)
}

// A table of mounts that takes long to read, or is long, is read in part, whole lines of it. A
// usual one is read to its end.
func TestMountsThatTakeLong(t *testing.T) {
	line := strings.Repeat("m", 99) + "\n"
	for name, c := range map[string]struct {
		lines int
		each  time.Duration
		whole bool
	}{
		"usual":           {600, 0, true},
		"usual, and slow": {600, time.Second, true},
		"long":            {10_000, 0, true},
		"long, and slow":  {10_000, 100 * time.Millisecond, false},
		"too long":        {30_000, 0, false},
		"none":            {0, time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			table, whole := readWithin(sluggish{strings.NewReader(strings.Repeat(line, c.lines)), c.each}, begun)
			lines := bytes.Count(table, []byte("\n"))
			if whole != c.whole || whole && lines != c.lines || len(table) != lines*len(line) || c.lines > 0 && lines == 0 {
				t.Errorf("%s: %d lines, whole %v", name, lines, whole)
			}
			if took := time.Since(begun); c.lines > 600 && took > 2*mountsTime+8*c.each {
				t.Errorf("%s: it took %v", name, took)
			}
		})
	}
}

// What took long is not read again at once, and what others see is not mixed up with it.
func TestSlowMountsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s slowTables
		key := mountsKey{1, "/"}
		s.remember(key, slowTable{[]byte("a\n"), false, time.Now().Add(time.Second)})
		if table, whole, known := s.recall(key); !known || whole || string(table) != "a\n" {
			t.Errorf("%q, %v, %v", table, whole, known)
		}
		for _, other := range []mountsKey{{2, "/"}, {1, "/jail"}} {
			if _, _, known := s.recall(other); known {
				t.Errorf("%v is known", other)
			}
		}
		time.Sleep(time.Second)
		if _, _, known := s.recall(key); known {
			t.Error("it is believed for ever")
		}
		for n := range uint64(10 * mostSlow) {
			s.remember(mountsKey{n, "/"}, slowTable{})
		}
		if len(s.known) > mostSlow {
			t.Errorf("%d are remembered", len(s.known))
		}
	})
}
