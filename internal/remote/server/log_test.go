package server

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever causes many lines leaves out none of another client's.
func TestLinesOfOthers(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	var l Lines
	for range 10 * mostLines {
		l.Warn(t.Context(), log, strangers, "no client")
		l.Warn(t.Context(), log, "eve", "refused")
	}
	l.Info(t.Context(), log, "ada", "took a share")
	if !strings.Contains(out.String(), `msg="took a share" client=ada`) {
		t.Error("a client's line was left out for others'")
	}
	if n := strings.Count(out.String(), "no client"); n > 4*mostLines {
		t.Errorf("%d lines of strangers", n)
	}
}

// Clients that come once, such as a cluster's claims, are forgotten. Of one whose lines were left out it is told how many.
func TestLinesOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lines
		for range 2 * mostLines {
			l.room("eve")
		}
		for i := range 10 * mostKnown {
			if i%mostKnown == 0 {
				time.Sleep(2 * time.Second)
			}
			if ok, _ := l.room("node/" + strconv.Itoa(i)); !ok {
				t.Fatalf("client %d has no room", i)
			}
		}
		if len(l.from) > mostKnown+1 {
			t.Errorf("%d clients are known", len(l.from))
		}
		if ok, leftOut := l.room("eve"); !ok || leftOut != mostLines {
			t.Errorf("%d lines were left out", leftOut)
		}
	})
}

// The log has no arguments of commands.
func TestNameOf(t *testing.T) {
	for args, want := range map[string]string{"": "", "train --token=secret": "train", "a\x1b[2J b": `a\x1b[2J`} {
		if got := nameOf(strings.Fields(args)); got != want {
			t.Errorf("%q: %q", args, got)
		}
	}
}
