// Package hack tests the scripts of this folder.
package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command runs make in the checkout.
func command(args ...string) (string, error) {
	cmd := exec.Command("make", append([]string{"--no-print-directory"}, args...)...)
	cmd.Dir = ".."
	// The test may run below another make.
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", "MAKEOVERRIDES=", "MFLAGS=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A pattern reaches the script or program that make starts as it was given, and one that matches nothing fails.
func TestPatternsReachWhatMakeStarts(t *testing.T) {
	for target, says := range map[string]string{
		"fuzz": "no fuzz target matches No'such$|Nor$this", "bench-place": `look for "No'such$|Nor$this": no figure's id begins so`,
		"bench-none": "no figure's id begins with No'such$|Nor$this",
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			if out, err := command(target, "ONLY=No'such$|Nor$this"); err == nil || !strings.Contains(out, says) {
				t.Errorf("got %v, %s; want a failure that says %q", err, out, says)
			}
		})
	}
}

// Of an id, make bench measures the one area that can have it.
func TestBenchMeasuresTheAreaOfAnID(t *testing.T) {
	for only, want := range map[string]string{"": "mem place time promises", "time.pair": "time", "promise.cap": "promises", "cap": ""} {
		out, err := command("--dry-run", "bench", "ONLY="+only)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var areas []string
		for _, area := range []string{"mem", "place", "time", "promises"} {
			if strings.Contains(out, "run ./test/bench/"+area) {
				areas = append(areas, area)
			}
		}
		if got := strings.Join(areas, " "); got != want || (got == "") != strings.Contains(out, "no figure's id") {
			t.Errorf("ONLY=%s measures %q, want %q", only, got, want)
		}
	}
}

// go test itself passes when a pattern matches no test.
func TestOnlyFailsWhereNoTestRuns(t *testing.T) {
	tests := filepath.Join(t.TempDir(), "go")
	const ran = `#!/bin/sh
echo "=== RUN   TestOne"
echo "=== RUN   TestOne/case"
echo ok
exit ${STATUS:-0}
`
	if err := os.WriteFile(tests, []byte(ran), 0o700); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(none, []byte("#!/bin/sh\necho 'ok divvy 0.1s [no tests to run]'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, command, pattern, status string
		passes                         bool
	}{
		{"a test runs", tests, "^TestOne$", "0", true},
		{"a case runs", tests, "TestOne/case", "0", true},
		{"the case is missing", tests, "TestOne/case/deeper", "0", false},
		{"one of two ways", tests, "TestOne|TestTwo/a/b", "0", true},
		{"a test fails", tests, "TestOne", "1", false},
		{"no test", none, "TestOne$", "0", false},
		{"no pattern", none, "", "0", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command("./only.sh", test.pattern, "./...")
			cmd.Env = append(os.Environ(), "GO="+test.command, "STATUS="+test.status)
			if out, err := cmd.CombinedOutput(); (err == nil) != test.passes {
				t.Errorf("passes: %v, want %v: %s", err == nil, test.passes, out)
			}
		})
	}
}
