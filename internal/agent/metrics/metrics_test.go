package metrics

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestCounts(t *testing.T) {
	m := New("gpu-1")
	invalid := errors.New("invalid")
	m.Prepared(30*time.Millisecond, nil)
	m.Prepared(150*time.Millisecond, nil)
	m.Prepared(time.Millisecond, &alloc.Refusal{Reason: alloc.ReasonFull})
	m.Prepared(time.Millisecond, errors.Join(invalid, errors.New("and why")), invalid)
	m.Prepared(time.Minute, errors.New("the disk is full"), invalid)
	m.Released(time.Millisecond, nil)
	m.Released(time.Millisecond, errors.New("the disk is full"))
	m.Failed(OperationPublish)
	var all bytes.Buffer
	if err := m.Write(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	faults, err := promlint.New(bytes.NewReader(all.Bytes())).Lint()
	if err != nil || len(faults) > 0 {
		t.Errorf("against the conventions: %v, %v", faults, err)
	}
	var ours strings.Builder
	for line := range strings.Lines(all.String()) {
		if strings.HasPrefix(strings.TrimLeft(line, "# HELPTY"), "divvy_") {
			ours.WriteString(line)
		}
	}
	const golden = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(ours.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if ours.String() != string(want) {
		t.Errorf("differs from %s:\n%s", golden, ours.String())
	}
}
