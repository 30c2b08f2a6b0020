package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdviceAsTable(t *testing.T) {
	p := pastExample()
	for i := range p.Records[:3] {
		p.Records[i].Peak, p.Records[i].Refused, p.Records[i].Whole = p.Records[i].Peak/4, 0, true
	}
	told, err := adviceFrom(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var w strings.Builder
	printAdvice(&w, told, look{width: 120})
	if strings.ContainsAny(w.String(), "\x1b\x07") {
		t.Errorf("a name reaches the terminal: %q", w.String())
	}
	golden(t, "advise.table", w.String())
	w.Reset()
	told.Proposed.Needed++
	printAdvice(&w, told, look{width: 120})
	if first, _, _ := strings.Cut(w.String(), "\n"); first != "! These proposals need more than was granted: 3 GPUs at once in place of 2." {
		t.Errorf("first it says %q", first)
	}
	told.Proposed.Needed, told.Proposed.Unplaced = told.Granted.Needed, told.Granted.Unplaced+1
	w.Reset()
	printAdvice(&w, told, look{width: 120})
	if first, _, _ := strings.Cut(w.String(), "\n"); !strings.Contains(first, "2 shares would find no place at once, in place of 1.") {
		t.Errorf("first it says %q", first)
	}
	w.Reset()
	printAdvice(&w, advised{}, look{})
	golden(t, "advise-none.table", w.String())
}

// The histories of several machines are given as files. Files of another kind are refused, and records that are none left out.
func TestAdviceFromFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p := pastExample()
	first, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Records {
		p.Records[i].Node = "lab2"
	}
	second, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	one, two := write("1.json", string(first)), write("2.json", strings.Replace(string(second), `"records":[`, `"records":[{"v":7},`, 1))
	status, out, errOut := call(t, "advise", "--since", "2026-01-01", "-o", "json", one, two)
	var told advised
	if err := json.Unmarshal([]byte(out), &told); status != 0 || err != nil || told.Granted.Machines != 2 || told.Granted.Shares != 6 || len(told.Proposals) != 2 {
		t.Errorf("status %d, %v: %s", status, err, out)
	}
	if !strings.Contains(errOut, "has 1 records that are none") {
		t.Errorf("%q", errOut)
	}
	for _, text := range []string{"", "{}", "[]", `{"records":null}`, `{"records":3}`, strings.Repeat("[", 100_000), "\xff"} {
		if _, _, err := readHistory(strings.NewReader(text)); !errors.Is(err, errNoHistory) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if status, _, errOut := call(t, "advise", filepath.Join(dir, "none\x1b")); status != 1 || strings.Contains(errOut, "\x1b") {
		t.Errorf("status %d, %q", status, errOut)
	}
}

func FuzzReadHistory(f *testing.F) {
	text, err := json.Marshal(pastExample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"records":[{"v":1,"kind":"end","node":"x"},{"v":1,"kind":"hour","uuid":"u","granted":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, _, err := readHistory(bytes.NewReader(text))
		if err != nil {
			return
		}
		if len(records) > 1000 {
			return
		}
		told, err := adviceFrom(t.Context(), past{Records: records})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range told.Proposals {
			if p.Memory < p.Peak {
				t.Fatalf("%+v", p)
			}
		}
	})
}
