package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/history/store"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

var historyNoon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// pastExample has records of three users, one of whom has a hostile mind.
func pastExample() past {
	record := func(kind history.Kind, user, name string, hours int) history.Record {
		return history.Record{
			Version: 1, Kind: kind, Node: "lab1", From: historyNoon, At: historyNoon.Add(time.Duration(hours) * time.Hour), ID: name, Name: name, UID: 1001, User: user, Began: historyNoon,
			Command: []string{"/usr/bin/python3", "train.py"}, GPU: 1, UUID: "GPU-6e5f0d1c-8a3b-4c2d-9e1f-001122334455", Backend: "slice", Policy: "fixed", Cores: 30,
			Granted: 8 << 30, Peak: 5 << 30, Figures: history.Figures{Used: 3e11, Entitled: 1e12, Held: 2e11, Refused: 2}, Total: history.Figures{Used: 3e11},
		}
	}
	p := past{Since: historyNoon, Records: []history.Record{
		{Version: 1, Kind: history.KindNode, Node: "lab1", GPUs: []history.GPU{{Index: 0, UUID: "GPU-0", Model: "A100", Capacity: 79 << 30}}},
		record(history.KindHour, "ada", "train", 1), record(history.KindEnd, "ada", "serve", 2),
		record(history.KindEnd, "\x1b[2J\x07eve", "=cmd|'/c calc'!A1, \"x\"\nnext", 1),
	}}
	p.Records[2].Ended = "its last process is gone"
	p.Records[3].Command = []string{"@SUM(A1)", "\u202e", strings.Repeat("long", 100)}
	return p
}

func TestHistoryAsTable(t *testing.T) {
	p := pastExample()
	for name, by := range map[string]columnsFlag{"user": {history.ByDay, history.ByUser}, "share": {history.ByShare}, "command": {history.ByCommand, history.ByGPU}} {
		chosen := by.all()
		p.Rows = history.Sum(p.Records, chosen, time.UTC)
		var w strings.Builder
		printHistory(&w, p, chosen, false, look{width: 160})
		golden(t, filepath.Join("history", name+".table"), w.String())
		if strings.ContainsAny(w.String(), "\x1b\x07") {
			t.Errorf("%s: a name reaches the terminal: %q", name, w.String())
		}
	}
	var w strings.Builder
	printHistory(&w, past{Since: time.Date(2026, 11, 17, 12, 0, 0, 0, time.Local)}, nil, false, look{})
	golden(t, filepath.Join("history", "none.table"), w.String())
}

// A spreadsheet shows names as they are, and computes nothing.
func TestHistoryAsCSV(t *testing.T) {
	p := pastExample()
	chosen := (&columnsFlag{history.ByShare, history.ByCommand}).all()
	p.Rows = history.Sum(p.Records, chosen, time.UTC)
	for name, records := range map[string]bool{"sums.csv": false, "records.csv": true} {
		var out bytes.Buffer
		if err := writeCSV(&out, p, chosen, records); err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("history", name), out.String())
		rows, err := csv.NewReader(&out).ReadAll() // which refuses rows of another length
		if err != nil || len(rows) != 4 {
			t.Fatalf("%s: %v, %d rows", name, err, len(rows))
		}
		for _, row := range rows {
			for _, cell := range row {
				if strings.ContainsAny(cell, "\x1b\x07\n") || cell != "" && strings.ContainsRune(formulas, []rune(strings.TrimSpace(cell))[0]) {
					t.Errorf("%s: %q", name, cell)
				}
			}
		}
	}
}

func TestSpreadsheetCells(t *testing.T) {
	for cell, want := range map[string]string{
		"": "", "train": "train", "=1+1": "'=1+1", "+1": "'+1", "-x": "'-x", "@x": "'@x", "  =x": "'  =x", "\t=x": `\t=x`, "\r=x": `\r=x`, "＝x": "'＝x", "a=b": "a=b",
	} {
		if got := spreadsheetCell(cell); got != want {
			t.Errorf("%q: %q, want %q", cell, got, want)
		}
	}
}

func TestSince(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"36h": now.Add(-36 * time.Hour), "7d": now.AddDate(0, 0, -7), "2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), "0s": now,
		"2026-11-01T10:30": time.Date(2026, 11, 1, 10, 30, 0, 0, time.UTC),
	} {
		if got, err := (&since{text}).from(now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1h", "x", "99999d", "-3d", "yesterday"} {
		if got, err := (&since{text}).from(now); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// Without an agent a user reads what their own one has left.
func TestHistoryWithoutAnAgent(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(rundir.Variable, dir)
	now := time.Now()
	kept := store.New(store.Config{Dir: filepath.Join(dir, "history"), Limits: store.Usual, Now: time.Now})
	kept.Start(func(text string, _ bool) { t.Error(text) })
	kept.Add(history.Record{Kind: history.KindEnd, Node: "lab1", ID: "t1", Name: "train", User: "ada", Began: now.Add(-2 * time.Hour), From: now.Add(-2 * time.Hour), At: now.Add(-time.Hour)})
	kept.Add(history.Record{Kind: history.KindEnd, Node: "lab1", ID: "t0", Name: "before", User: "ada", Began: now.Add(-3 * time.Hour), From: now.Add(-3 * time.Hour), At: now.Add(-150 * time.Minute)})
	kept.Close()
	run := func(args ...string) (status int, out, errOut string) {
		var stdout, stderr bytes.Buffer
		status = Main(args, &stdout, &stderr)
		return status, stdout.String(), stderr.String()
	}
	if status, out, errOut := run("history", "--by", "share"); status != 0 || !strings.Contains(out, "train") || errOut != "" {
		t.Errorf("status %d, %q, %q", status, out, errOut)
	}
	status, out, _ := run("history", "-o", "json")
	var told past
	if err := json.Unmarshal([]byte(out), &told); status != 0 || err != nil || len(told.Records) != 2 || len(told.Rows) == 0 {
		t.Errorf("status %d, %v: %s", status, err, out)
	}
	if status, out, _ := run("history", "--records"); status != 0 || strings.Index(out, "before") > strings.Index(out, "train") || !strings.Contains(out, "before") {
		t.Errorf("status %d, not in the order of time: %q", status, out)
	}
	if status, out, _ := run("history", "--since", "30m"); status != 0 || !strings.Contains(out, "No share is recorded since") {
		t.Errorf("status %d, %q", status, out)
	}
	if status, out, _ := run("history", "--user", "bob", "--by", "user"); status != 0 || strings.Contains(out, "ada") {
		t.Errorf("status %d, %q", status, out)
	}
	if err := os.RemoveAll(filepath.Join(dir, "history")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "history")); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := run("history"); status != 0 || !strings.Contains(errOut, "is not a directory") {
		t.Errorf("status %d, %q", status, errOut)
	}
}
