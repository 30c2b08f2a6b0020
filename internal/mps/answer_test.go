package mps

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestRefusal(t *testing.T) {
	for answer, want := range map[string]error{
		"":                            nil,
		"100.0":                       nil,
		"Unknown command \"version\"": ErrUnknownCommand,
		"Server 5 not found":          ErrNoServer,
		"Server 5 not found\nServer 5 not found!\n1": ErrNoServer,
		"Server 5 found": nil,
	} {
		if err := refusal(lines(answer)); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("%q: %v, want %v", answer, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	if pids, err := parsePIDs(lines("12\n 7 \n\n")); err != nil || !slices.Equal(pids, []int{12, 7}) {
		t.Errorf("processes: %v, %v", pids, err)
	}
	for _, bad := range []string{"-1", "0", "x", "1 2", "99999999999999999999"} {
		if pids, err := parsePIDs(lines(bad)); !errors.Is(err, ErrAnswer) {
			t.Errorf("processes of %q: %v, %v", bad, pids, err)
		}
	}
	if p, err := parsePercentage(lines("33.3\n")); err != nil || p != 33.3 {
		t.Errorf("percentage: %v, %v", p, err)
	}
	for _, bad := range []string{"", "0.0", "-3", "100.1", "NaN", "Inf", "a", "30\n40"} {
		if p, err := parsePercentage(lines(bad)); !errors.Is(err, ErrAnswer) {
			t.Errorf("percentage of %q: %v, %v", bad, p, err)
		}
	}
	for _, good := range []Status{StatusInitializing, StatusActive, StatusFault} {
		if s, err := parseStatus(lines(string(good) + "\n")); err != nil || s != good {
			t.Errorf("status: %v, %v", s, err)
		}
	}
	for _, bad := range []string{"", "active", "ACTIVE\nFAULT"} {
		if s, err := parseStatus(lines(bad)); !errors.Is(err, ErrAnswer) {
			t.Errorf("status of %q: %v, %v", bad, s, err)
		}
	}
}

// Whatever a program says instead of an answer is refused or within its bounds.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{"100.0\n", "1G\n", "12\n13\n", "FAULT", "Unknown command \"x\"", "Server 1 not found\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		answer := lines(text)
		for _, line := range answer {
			if line == "" || strings.ContainsAny(line, "\n") {
				t.Fatalf("line %q of %q", line, text)
			}
		}
		if p, err := parsePercentage(answer); err == nil && !(p > 0 && p <= 100) {
			t.Fatalf("percentage %v of %q", p, text)
		}
		pids, err := parsePIDs(answer)
		if err == nil && slices.ContainsFunc(pids, func(pid int) bool { return pid <= 0 }) {
			t.Fatalf("processes %v of %q", pids, text)
		}
		if s, err := parseStatus(answer); err == nil && text != "" && !strings.Contains(text, string(s)) {
			t.Fatalf("status %q of %q", s, text)
		}
	})
}
