package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A program that does not end is ended with all that it started, and what it said is kept until then.
func TestTimeLimitEndsAGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "child")
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, late)
	defer cancel()
	script := `(echo $$; exec sleep 600) & echo $! >"$0.new"; mv "$0.new" "$0"; exec sleep 600`
	done := make(chan error, 1)
	stopped, stop := context.WithCancelCause(ctx)
	go func() {
		_, err := finish(stopped, []string{"/bin/sh", "-c", script, file}, os.Environ(), nil)
		done <- err
	}()
	child := 0
	for child == 0 {
		text, _ := os.ReadFile(file)
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	stop(late)
	if err := <-done; !errors.Is(err, late) {
		t.Errorf("it ends with %v", err)
	}
	for end := time.Now().Add(time.Minute); alive(child); {
		if time.Now().After(end) {
			t.Fatalf("process %d, which the program started, lives", child)
		}
	}
}

func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func TestLastAnswer(t *testing.T) {
	var answer struct{ Code int }
	o := output{out: "{\"code\":1}\nnoise\n{\"code\":2}\n", how: "exit status 0"}
	if err := o.last(&answer); err != nil || answer.Code != 2 {
		t.Errorf("%+v, %v", answer, err)
	}
	for _, text := range []string{"", "noise", "{", `{"code":"x"}`} {
		if err := (output{out: text}).last(&answer); err == nil {
			t.Errorf("%q is an answer", text)
		}
	}
}

func TestSummariesOfTools(t *testing.T) {
	if got := errorsFound(output{out: "========= ERROR SUMMARY: 12 errors"}); got != "12" {
		t.Errorf("errors: %s", got)
	}
	if got := errorsFound(output{}); got != "no summary" {
		t.Errorf("errors of none: %s", got)
	}
	table := "NOTICE\n\nTime (%),Total Time (ns),Instances,Avg (ns),Name\n100.0,5000000,50,100000.0,divvy_busy_ns\n"
	if got := instances(table); got != "50 divvy_busy_ns" {
		t.Errorf("kernels: %q", got)
	}
	if got := instances("100.0,5,50,divvy\n"); got != "" {
		t.Errorf("kernels without a head: %q", got)
	}
}

// A report whose disk is full by the end goes elsewhere: the test took minutes.
func TestReportWithoutRoom(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	full := "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	r := &report{secrets: &scrubber{}}
	place, err := r.writeSomewhere(full)
	if want := filepath.Join(os.Getenv("HOME"), reportName); err != nil || place != want {
		t.Errorf("%s, %v, want %s", place, err, want)
	}
	if text, err := os.ReadFile(place); err != nil || !strings.HasPrefix(string(text), "# Divvy on a GPU") {
		t.Errorf("%v: %s", err, text)
	}
}

// A file that was made for a report that never came is not left; a report that was there is.
func TestEmptyReportIsTakenBack(t *testing.T) {
	empty, earlier := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "earlier")
	for file, text := range map[string]string{empty: "", earlier: "a report"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		removeEmpty(file)
	}
	if exists(empty) || !exists(earlier) {
		t.Errorf("empty is there: %v, earlier is there: %v", exists(empty), exists(earlier))
	}
}

// A report never takes the place of an earlier one, unless that place is asked for.
func TestReportsAreKept(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	for _, want := range []string{reportName, "divvy-gpu-report-2.md", "divvy-gpu-report-3.md"} {
		if place, err := reportPlace(""); err != nil || place != filepath.Join(folder, want) {
			t.Errorf("%s, %v, want %s", place, err, want)
		}
	}
	if place, err := reportPlace(reportName); err != nil || place != filepath.Join(folder, reportName) {
		t.Errorf("%s, %v, want the file that is there", place, err)
	}
}
