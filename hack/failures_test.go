package hack

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// failures is what hack/failures.sh makes of a log.
func failures(t *testing.T, log string) string {
	t.Helper()
	cmd := exec.Command("./failures.sh")
	cmd.Stdin = strings.NewReader(log)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// Each test that failed is named with its reason, whether go test says that below its name or above it.
func TestFailuresNameTestsAndReasons(t *testing.T) {
	for form, one := range map[string]struct{ log, want string }{
		"below": {`ok  	example.org/a	0.1s
--- FAIL: TestOne (0.02s)
    --- FAIL: TestOne/a_case (0.01s)
        one_test.go:7: got 1,
            want 2
FAIL
FAIL	example.org/b	0.2s
?   	example.org/c	[no test files]
FAIL	example.org/d [build failed]
make: *** [Makefile:112: test-go] Error 1
`, `--- FAIL: TestOne (0.02s)
    --- FAIL: TestOne/a_case (0.01s)
        one_test.go:7: got 1,
            want 2
FAIL	example.org/d [build failed]
make: *** [Makefile:112: test-go] Error 1
`},
		"above": {`=== RUN   TestOne
=== RUN   TestTwo
    two_test.go:3: about to begin
=== NAME  TestOne
    one_test.go:7: got 1,
        want 2
=== NAME  TestTwo
    two_test.go:9: it works
--- FAIL: TestOne (0.02s)
--- PASS: TestTwo (0.03s)
FAIL
`, `--- FAIL: TestOne (0.02s)
    one_test.go:7: got 1,
        want 2
`},
		"nothing": {"  TEST    build/test/a\n=== RUN   TestOne\n    one_test.go:7: fine\n--- PASS: TestOne (0.02s)\nPASS\nok  	example.org/a	0.1s\n", ""},
		"panic":   {"panic: test timed out after 30m0s\n\trunning tests:\nFAIL\texample.org/a\t1800.1s\n", "panic: test timed out after 30m0s\n"},
	} {
		if got := failures(t, one.log); got != one.want {
			t.Errorf("%s: got\n%s\nwant\n%s", form, got, one.want)
		}
	}
}

// Of one test more is told than of each of many.
func TestFailuresOfFewAreLong(t *testing.T) {
	reason := strings.Repeat("        one_test.go:7: a step\n", 12) + "        one_test.go:9: got 1, want 2\n"
	log := "--- FAIL: TestOne (0.02s)\n    --- FAIL: TestOne/a_case (0.01s)\n" + reason
	if got := failures(t, log+"FAIL\n"); got != log {
		t.Errorf("got\n%s\nwant\n%s", got, log)
	}
}

// A test with a long reason leaves room for the others, and many tests are counted.
func TestFailuresAreBounded(t *testing.T) {
	var log strings.Builder
	for i := range 100 {
		fmt.Fprintf(&log, "--- FAIL: Test%d (0.00s)\n%s", i, strings.Repeat("    one_test.go:7: word\n", 50))
	}
	lines := strings.Split(strings.TrimSpace(failures(t, log.String())), "\n")
	if len(lines) != 61 || lines[9] != "--- FAIL: Test1 (0.00s)" || lines[60] != "… and 840 lines more" {
		t.Errorf("%d lines, of which the last is %q", len(lines), lines[len(lines)-1])
	}
}
