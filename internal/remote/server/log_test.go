package server

import (
	"log/slog"
	"strings"
	"testing"
)

// Whoever causes many lines leaves out none of another client's.
func TestLinesOfOthers(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	var l lines
	for range 10 * mostLines {
		l.warn(t.Context(), log, strangers, "no client")
		l.warn(t.Context(), log, "eve", "refused")
	}
	l.info(t.Context(), log, "ada", "took a share")
	if !strings.Contains(out.String(), `msg="took a share" client=ada`) {
		t.Error("a client's line was left out for others'")
	}
	if n := strings.Count(out.String(), "no client"); n > 4*mostLines {
		t.Errorf("%d lines of strangers", n)
	}
}

// The log has no arguments of commands.
func TestNameOf(t *testing.T) {
	for args, want := range map[string]string{"": "", "train --token=secret": "train", "a\x1b[2J b": `a\x1b[2J`} {
		if got := nameOf(strings.Fields(args)); got != want {
			t.Errorf("%q: %q", args, got)
		}
	}
}
